"""Attacks by configs that name code, files or gigabytes."""

import base64
import json
import marshal

from tests.faults.attack_list import CODE, attack
from tests.faults.attacks_on_zips import members_of, zipped

# --- .keras: the config ---------------------------------------------------------------


def layer(class_name, module="keras.layers", registered_name=None, **config):
    return {
        "module": module,
        "class_name": class_name,
        "config": {"name": "bad", **config},
        "registered_name": registered_name,
    }


def sequential(*layers_, shape=(None, 4)):
    first = layer("InputLayer", batch_shape=list(shape), dtype="float32")
    first["config"]["name"] = "first"
    return layer("Sequential", "keras", layers=[first, *layers_])


def with_config(folder, config):
    members = members_of(folder)
    text = config if isinstance(config, bytes) else json.dumps(config).encode()
    return zipped(folder, [*{**members, "config.json": text}.items()])


def config_attack(name, config, harmless=False):
    def make(folder):
        return with_config(folder, config(folder) if callable(config) else config)

    attack(f"config: {name}", make, harmless)


HUGE = 2**40
HUNGRY = {
    "Dense": ({"units": HUGE}, {"units": 2**27}, {"units": "9" * 40}),
    "Embedding": ({"input_dim": 2**33, "output_dim": 8},),
    "LSTM": ({"units": 2**17},),
    "GRU": ({"units": 2**30},),
    "Conv1D": ({"filters": 2**33, "kernel_size": 3},),
    "Conv2DTranspose": ({"filters": 2**10, "kernel_size": 2**12},),
    "EinsumDense": ({"equation": "ab,bc->ac", "output_shape": 2**35},),
    "Normalization": ({"axis": -1}, {"mean": [0.0] * 4, "variance": "x"}),
    "MelSpectrogram": (
        {"num_mel_bins": 2**28, "fft_length": 2048},
        {"fft_length": 2**30, "num_mel_bins": 128},
    ),
    "STFTSpectrogram": ({"fft_length": 2**31, "frame_length": 2**31},),
    "IntegerLookup": ({"max_tokens": HUGE, "output_mode": "one_hot"},),
    "Discretization": ({"num_bins": HUGE}, {"bin_boundaries": ["x"]}),
    "CategoryEncoding": ({"num_tokens": HUGE},),
    "RepeatVector": ({"n": HUGE},),
    "Reshape": ({"target_shape": [HUGE, HUGE]},),
    "ZeroPadding1D": ({"padding": HUGE},),
    "UpSampling1D": ({"size": HUGE},),
    "SpectralNormalization": ({"layer": layer("Dense", units=2**33)},),
    "Bidirectional": ({"layer": layer("LSTM", units=2**17)},),
    "MultiHeadAttention": ({"num_heads": 2**20, "key_dim": 2**20},),
    "HashedCrossing": ({"num_bins": HUGE, "output_mode": "one_hot"},),
    "RandomCrop": ({"height": HUGE, "width": HUGE},),
    "Resizing": ({"height": HUGE, "width": HUGE},),
}
for class_name, settings in HUNGRY.items():
    for number, setting in enumerate(settings):
        shape = (None, 6, 4) if class_name[:3] in ("LST", "GRU", "Con", "Bid") else None
        config_attack(
            f"{class_name} asks for too much {number}",
            sequential(layer(class_name, **setting), shape=shape or (None, 4)),
            harmless=True,
        )

for name, initializer in {
    "Orthogonal": {"module": "keras.initializers", "class_name": "Orthogonal"},
    "Identity": {"module": "keras.initializers", "class_name": "Identity"},
    "a huge Constant": {
        "module": "keras.initializers",
        "class_name": "Constant",
        "inner": {"value": [1.0] * 9},
    },
}.items():
    inner = initializer.pop("inner", {})
    config_attack(
        f"initializer {name}",
        sequential(
            layer(
                "Dense",
                units=40_000,
                kernel_initializer={
                    **initializer,
                    "config": inner,
                    "registered_name": None,
                },
            ),
            shape=(None, 40_000),
        ),
    )


def nested(depth):
    inner = layer("Dense", units=1)
    for _ in range(depth):
        inner = layer("TimeDistributed", layer=inner)
    return sequential(inner)


def loaded_lambda(folder):
    code = compile(CODE, "x", "exec")
    text = base64.b64encode(marshal.dumps(code)).decode()
    function = {"class_name": "__lambda__", "config": {"code": text}}
    return sequential(layer("Lambda", function=function))


config_attack("nested 50 deep", nested(50), harmless=True)
config_attack("nested 300 deep", nested(300), harmless=True)
config_attack("nested 100,000 deep", b'{"a":' * 10**5)
config_attack("lists of 100 MB", lambda folder: b"[" + b"[]," * (1 << 25) + b"[]]")
config_attack("Lambda with code", loaded_lambda)
for name, function in {
    "Lambda of old Keras": [base64.b64encode(marshal.dumps(1)).decode(), None, None],
    "Lambda named os.system": {
        "class_name": "function",
        "module": "os",
        "config": "system",
        "registered_name": "system",
    },
    "Lambda named eval": {
        "class_name": "function",
        "module": "builtins",
        "config": "eval",
        "registered_name": "eval",
    },
    "Lambda of text": CODE,
}.items():
    config_attack(name, sequential(layer("Lambda", function=function)))
for module, name in {
    ("os", "system"),
    ("posix", "system"),
    ("builtins", "eval"),
    ("builtins", "exec"),
    ("builtins", "__import__"),
    ("builtins", "open"),
    ("subprocess", "Popen"),
    ("subprocess", "check_output"),
    ("pickle", "loads"),
    ("importlib", "import_module"),
    ("runpy", "run_path"),
    ("shutil", "rmtree"),
    ("numpy", "load"),
    ("h5py", "File"),
    ("toolkit.utils", "get_file"),
    ("toolkit.saving", "load_model"),
    ("toolkit.data.processes", "subprocess"),
    ("toolkit.cli.custom_objects", "runpy"),
    ("keras.utils", "get_file"),
    ("keras.saving", "load_model"),
    ("keras.src.utils.file_utils", "os"),
    ("", "os"),
    ("../../x", "y"),
    (None, "os.system"),
    (None, "__import__('os').system('touch ran')"),
}:
    config_attack(
        f"layer {name} of {module}",
        sequential(layer(name, module, command="touch ran", args=["touch ran"])),
    )
    config_attack(
        f"function {name} of {module}",
        sequential(
            layer(
                "Activation",
                activation={
                    "class_name": "function",
                    "module": module,
                    "config": name,
                    "registered_name": name,
                },
            )
        ),
    )
for name in ("__import__('os')", "eval", "os.system", "lambda x: x", "__class__"):
    config_attack(
        f"activation {name}", sequential(layer("Dense", units=1, activation=name))
    )
    config_attack(
        f"initializer {name}",
        sequential(layer("Dense", units=1, kernel_initializer=name)),
    )
for name in ("TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"):
    config_attack(
        f"{name} that loads a file",
        sequential(layer(name, filepath="secret.txt", module="secret.txt")),
    )
for key in ("vocabulary", "idf_weights"):
    for class_name in ("StringLookup", "TextVectorization", "IntegerLookup"):

        def read_words(folder, class_name=class_name, key=key):
            bad = {"vocabulary": ["a"], "output_mode": "tf_idf"}
            bad[key] = str(folder / "secret.txt")
            return sequential(layer(class_name, **bad))

        config_attack(f"{key} of {class_name} is a path", read_words)
for name, special in {
    "__numpy__ of objects": {"value": [1], "dtype": "object"},
    "__numpy__": {"value": [[1], [2, 3]], "dtype": "float32"},
    "__tensor__": {"value": "x" * 9, "dtype": "float32"},
    "__bytes__": {"value": "é€"},
    "__lambda__": {"value": CODE},
    "__reduce__": {"value": CODE},
    "__typespec__": {"spec_name": "os", "spec": "system"},
    "__slice__": {"start": CODE, "stop": [], "step": {}},
    "__complex__": {"value": CODE},
    "__ellipsis__": {"value": CODE},
}.items():
    config_attack(
        f"special {name}",
        sequential(
            layer(
                "Dense",
                units=1,
                bias_initializer={"class_name": name.split()[0], "config": special},
            )
        ),
    )
config_attack(
    "compiled with os.system",
    {
        **sequential(layer("Dense", units=1)),
        "compile_config": {
            "optimizer": "adam",
            "loss": {
                "class_name": "function",
                "module": "os",
                "config": "system",
                "registered_name": "system",
            },
        },
    },
)
config_attack(
    "control characters in a name",
    sequential({**layer("Dense", units=1), "config": {"name": "\x1b]0;x\x07"}}),
)
config_attack(
    "control characters in a class", sequential(layer("\x1b[2JDense", units=1))
)
config_attack(
    "control characters in an argument", sequential(layer("Dense", **{"\x1b[31m": 1}))
)
config_attack(
    "a shape that is not finite", b'{"class_name": "Dense", "config": {"units": NaN}}'
)
config_attack("an extent of text", sequential(layer("Dense", units="__import__('os')")))
