"""toolkit as a backend of Keras 3.

Import this package before Keras, and Keras computes on toolkit:

    import keras_toolkit
    import keras

Without a change of the script: `python -m keras_toolkit script.py`, or once for an
environment `python -m keras_toolkit --install`, and then `KERAS_BACKEND=toolkit`.
"""

from keras_toolkit.finder import activate

activate()
