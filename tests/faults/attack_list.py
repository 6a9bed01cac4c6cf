"""The list of attacks: files that somebody made to do harm.

An attack is a function that writes a file into a folder and returns what reads it. Code
that ran would make the file `ran` in the folder; `secret.txt` in it is what must not be
read.
"""

ATTACKS = {}
HARMLESS = set()  # those that may be read: nothing of what was intended comes of it
SECRET = "the secret words"
CODE = "import os; os.system('touch ran')"
ZEROS = bytes(1 << 20)


def attack(name, make=None, harmless=False):
    """Note an attack; make: (folder) -> what reads the file."""

    def note(function):
        assert name not in ATTACKS, name
        ATTACKS[name] = function
        if harmless:
            HARMLESS.add(name)
        return function

    return note if make is None else note(make)
