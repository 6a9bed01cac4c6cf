// Read images of digits from a file and print the class of each, in C++.
//
//     c++ -O2 caller.cpp libdigits.a -lpthread -o caller && ./caller images.f32

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "digits.h"

// A model with its workspace; several models may run at the same time.
class Digits {
  public:
    Digits() : workspace_(digits_workspace_size(0)) {
        check(digits_init(workspace_.data(), nullptr, 0));
    }

    std::vector<float> operator()(const std::vector<float> &images) {
        const std::size_t count = images.size() / DIGITS_INPUT_0_SIZE;
        std::vector<float> scores(count * DIGITS_OUTPUT_0_SIZE);
        const void *inputs[] = {images.data()};
        void *outputs[] = {scores.data()};
        check(digits_run(workspace_.data(), static_cast<int64_t>(count), inputs, outputs));
        return scores;
    }

    // The address of the workspace must not change.
    Digits(const Digits &) = delete;
    Digits &operator=(const Digits &) = delete;

  private:
    void check(digits_status status) {
        if (status != DIGITS_OK)
            throw std::runtime_error(digits_message(workspace_.data(), status));
    }

    std::vector<std::byte> workspace_;
};

int main(int argc, char **argv) {
    std::ifstream file(argc > 1 ? argv[1] : "images.f32", std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    std::vector<float> images(bytes.size() / sizeof(float));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char *>(images.data()));

    Digits model;
    const std::vector<float> scores = model(images);
    for (auto row = scores.begin(); row != scores.end(); row += DIGITS_OUTPUT_0_SIZE)
        std::cout << std::max_element(row, row + DIGITS_OUTPUT_0_SIZE) - row << '\n';
}
