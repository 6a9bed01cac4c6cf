"""Weekly carbon dioxide in the air of Mauna Loa: a time series in the package.

The weekly means of C. D. Keeling and T. P. Whorf, Scripps Institution of Oceanography.
The Carbon Dioxide Information Analysis Center of the United States Department of Energy
published them in 2004, in the public domain. Only the file format is different:
`co2.npz` stores one value per week in tenths of a ppm, and 0 for a missing value.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from toolkit.type_aliases import Array

FIRST_WEEK = "1958-03-29"


def load_data() -> tuple[Array, Array]:
    """Load the carbon dioxide of 2,284 weeks from March 1958 to December 2001.

    Downloads nothing. 59 weeks have no measurement; `np.interp` can fill them.

    Returns:
        `(weeks, ppm)`: the Saturdays that end the weeks, datetime64[D]: (2284,); the
        carbon dioxide in parts per million of dry air, float32: (2284,), NaN for a
        missing value.

    Example:
        >>> from toolkit.datasets import co2
        >>> weeks, ppm = co2.load_data()
        >>> print(weeks[-1], ppm[-1])
        2001-12-29 371.5

    Reference:
        C. D. Keeling and T. P. Whorf, Atmospheric CO2 concentrations derived from flask
        air samples at sites in the SIO network. In Trends: A Compendium of Data on
        Global Change, 2004.
    """
    file = files("toolkit.datasets") / "co2.npz"
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        tenths = arrays["tenths_ppm"]
    weeks = np.datetime64(FIRST_WEEK) + 7 * np.arange(len(tenths))
    return weeks, np.where(tenths, tenths / 10, np.nan).astype("float32")
