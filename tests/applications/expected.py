"""Reference data of Keras 3.15: parameters, features, digest of layers and weights.

Created with keras.applications: images of 64 x 64 x 3 (Inception and Xception: 96) and
ten classes. The digest covers the layers' names and the weights' shapes, in order.
"""

# name: (parameters, parameters without the classifier, features, digest)
EXPECTED = {
    "ConvNeXtBase": (87576714, 87566464, 1024, "e88ca63680aa"),
    "ConvNeXtLarge": (196245706, 196230336, 1536, "706cdcd7bdcc"),
    "ConvNeXtSmall": (49462378, 49454688, 768, "c4a7d6e40fd1"),
    "ConvNeXtTiny": (27827818, 27820128, 768, "2c2f65390883"),
    "ConvNeXtXLarge": (348168458, 348147968, 2048, "ee4be0b6b74a"),
    "DenseNet121": (7047754, 7037504, 1024, "034bc08bff77"),
    "DenseNet169": (12659530, 12642880, 1664, "2de835300568"),
    "DenseNet201": (18341194, 18321984, 1920, "7d9744a05646"),
    "EfficientNetB0": (4062381, 4049571, 1280, "c53dc68933df"),
    "EfficientNetB1": (6588049, 6575239, 1280, "054001e02bce"),
    "EfficientNetB2": (7782659, 7768569, 1408, "67178f3e0388"),
    "EfficientNetB3": (10798905, 10783535, 1536, "7921e0c64714"),
    "EfficientNetB4": (17691753, 17673823, 1792, "d82ae570d341"),
    "EfficientNetB5": (28534017, 28513527, 2048, "0bc6b6fa1935"),
    "EfficientNetB6": (40983193, 40960143, 2304, "20fb19abb391"),
    "EfficientNetB7": (64123297, 64097687, 2560, "620597f4d62f"),
    "EfficientNetV2B0": (5932122, 5919312, 1280, "ea71d4ecde4b"),
    "EfficientNetV2B1": (6943934, 6931124, 1280, "897a882628be"),
    "EfficientNetV2B2": (8783464, 8769374, 1408, "6680933702b4"),
    "EfficientNetV2B3": (12945992, 12930622, 1536, "1d9c722f374f"),
    "EfficientNetV2L": (117759658, 117746848, 1280, "503ecf7fcef0"),
    "EfficientNetV2M": (53163198, 53150388, 1280, "f1b87572faef"),
    "EfficientNetV2S": (20344170, 20331360, 1280, "6a9eb973ca42"),
    "InceptionResNetV2": (54352106, 54336736, 1536, "63a7f6336cad"),
    "InceptionV3": (21823274, 21802784, 2048, "e8b87ae7d00a"),
    "MobileNet": (3239114, 3228864, 1024, "35219fbea034"),
    "MobileNetV2": (2270794, 2257984, 1280, "9f6db54f7087"),
    "MobileNetV3Large": (4239242, 2996352, 960, "910a66826a05"),
    "MobileNetV3Small": (1540218, 939120, 576, "a1cd536142d6"),
    "NASNetLarge": (84957148, 84916818, 4032, "ec385ae5ad95"),
    "NASNetMobile": (4280286, 4269716, 1056, "1f337c87e65d"),
    "ResNet101": (42678666, 42658176, 2048, "0d0432ec0d6d"),
    "ResNet101V2": (42647050, 42626560, 2048, "b6172aa7693a"),
    "ResNet152": (58391434, 58370944, 2048, "816f59f1ae61"),
    "ResNet152V2": (58352138, 58331648, 2048, "2c0c53feefd9"),
    "ResNet50": (23608202, 23587712, 2048, "62f279f9c330"),
    "ResNet50V2": (23585290, 23564800, 2048, "da6b14a947ff"),
    "VGG16": (39929674, 14714688, 512, "422cf58d2c06"),
    "VGG19": (45239370, 20024384, 512, "8e4abe9cc9c3"),
    "Xception": (20881970, 20861480, 2048, "c1a712af3056"),
}
