"""Files that are written aside and then appear whole."""
