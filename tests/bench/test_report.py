"""Tests of ratios and bars, from rows with known figures."""

from toolkit.bench import report
from toolkit.bench.report import Verdict


def row(case, median, **options):
    samples = {name: [value, 2 * value] for name, value in median.items()}
    empty = {"skipped": {}, "failed": {}}
    return {"case": case, "median": median, "samples": samples} | empty | options


CNN = {"toolkit": 0.07, "Keras/JAX": 0.2, "torch": 0.1}


def test_ratio_is_to_the_best_peer():
    record = row("cifar_cnn/fit", CNN)
    assert report.best_peer(record) == "torch"
    assert report.best_peer(record, "Keras") == "Keras/JAX"
    assert round(report.ratio(record), 6) == 0.7
    assert round(report.ratio(record, "Keras"), 6) == 0.35


def test_verdict_needs_two_figures():
    assert report.ratio_verdict(row("cifar_cnn/fit", {"toolkit": 1.0})) is None
    assert report.ratio_verdict(row("cifar_cnn/fit", {"torch": 1.0})) is None
    met = report.ratio_verdict(row("cifar_cnn/fit", {"toolkit": 0.5, "torch": 1.0}))
    assert met == Verdict(0.5, 0.7, True)
    missed = report.ratio_verdict(row("cifar_cnn/fit", {"toolkit": 0.8, "torch": 1.0}))
    assert str(missed) == "0.80, bar 0.70: missed"


def test_growth_is_time_over_flops():
    times = {"base": 1.0, "batch x 2": 2.0, "width x 2": 5.0}
    verdicts = report.growth_verdicts(row("growth", times))
    assert verdicts["batch x 2"] == Verdict(1.0, 1.05, True)
    assert verdicts["width x 2"] == Verdict(1.25, 1.05, False)
    assert "depth x 2" not in verdicts
    assert report.growth_verdicts(row("growth", {"batch x 2": 1.0})) == {}


def test_speed_up_is_one_thread_over_two():
    assert report.speed_up_verdict(row("speed_up", {"1": 3.8, "2": 2.0})).is_met
    assert not report.speed_up_verdict(row("speed_up", {"1": 3.0, "2": 2.0})).is_met
    assert report.speed_up_verdict(row("speed_up", {"1": 3.0})) is None


def test_text_names_every_candidate():
    record = row(
        "cifar_cnn/fit", CNN, skipped={"a": "not installed"}, failed={"b": "it broke"}
    )
    text = report.format_row(record, with_verdicts=True)
    assert "cifar_cnn/fit, ms a step" in text
    for words in ("70.000", "least 70.000", "not installed", "it broke"):
        assert words in text
    assert "toolkit / torch: 0.70, bar 0.70" in text
    assert "bar" not in report.format_row(record, with_verdicts=False)


def test_summary_counts_the_bars():
    fit = row("cifar_cnn/fit", {"toolkit": 0.9, "torch": 1.0})
    threads = row("speed_up", {"1": 3.8, "2": 2.0})
    summary = report.format_summary({"rows": [fit, threads]})
    assert summary == "1 of 2 bars met; missed: cifar_cnn/fit 0.90"
    assert report.format_summary({"rows": [threads]}) == "1 of 1 bars met"
