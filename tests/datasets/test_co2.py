"""Test the series of carbon dioxide in the package."""

import hashlib

import numpy as np

from toolkit.datasets import co2


def test_series_is_constant():
    weeks, ppm = co2.load_data()
    assert weeks.shape == ppm.shape == (2284,)
    assert ppm.dtype == np.float32 and weeks.dtype == "datetime64[D]"
    digest = hashlib.sha256(np.nan_to_num(ppm).tobytes()).hexdigest()
    assert digest[:16] == "a35071af81067ce5"


def test_weeks_end_on_saturdays_with_gaps():
    weeks, ppm = co2.load_data()
    assert str(weeks[0]) == "1958-03-29" and str(weeks[-1]) == "2001-12-29"
    assert (np.diff(weeks) == np.timedelta64(7, "D")).all()
    assert weeks[0].item().weekday() == 5
    assert np.isnan(ppm).sum() == 59
    first = dict(zip(weeks[:8].astype(str), ppm[:8].tolist(), strict=True))
    assert round(first["1958-04-05"], 1) == 317.3  # as in the published table
    assert np.isnan(first["1958-05-10"])


def test_concentration_rises_each_decade():
    weeks, ppm = co2.load_data()
    decades = weeks.astype("datetime64[Y]").astype(int) // 10
    means = [np.nanmean(ppm[decades == decade]) for decade in np.unique(decades)]
    assert np.round(means).tolist() == [316.0, 320.0, 331.0, 345.0, 360.0, 370.0]
