//! Durations in arguments: a number with its unit, such as `30s`, `5min` or `365d`.

use std::time::Duration;

/// Length of a day in seconds.
const DAY: u64 = 24 * 60 * 60;

/// Parses a duration of at least a second. A number alone counts seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match seconds_or_zero(text)? {
        short if short < Duration::from_secs(1) => Err("at least one second is needed".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses a duration, which may be zero. A number alone counts seconds.
pub fn seconds_or_zero(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(count) => Ok(Duration::from_secs(count.into())),
        Err(_) => humantime::parse_duration(text).map_err(|error| error.to_string()),
    }
}

/// Parses a number of whole days, at least one. A number alone counts days.
pub fn days(text: &str) -> Result<u32, String> {
    let count = match text.parse::<u64>() {
        Ok(count) => Some(count),
        Err(_) => {
            let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
            let seconds = duration.as_secs();
            (duration.subsec_nanos() == 0 && seconds.is_multiple_of(DAY)).then_some(seconds / DAY)
        }
    };
    let count = count.filter(|count| *count > 0);
    count
        .and_then(|count| u32::try_from(count).ok())
        .ok_or_else(|| "whole days, at least 1d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_or_the_unit_of_their_option() {
        assert_eq!(seconds("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(seconds("5min"), Ok(Duration::from_secs(300)));
        assert_eq!(seconds("60"), Ok(Duration::from_secs(60)));
        assert_eq!(seconds_or_zero("0"), Ok(Duration::ZERO));
        assert_eq!(days("365d"), Ok(365));
        assert_eq!(days("2weeks"), Ok(14));
        assert_eq!(days("30"), Ok(30));
        for bad in ["0", "500ms", "soon", "-1", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        for bad in ["0", "1h", "36h", "soon", "-1", "99999999999"] {
            assert!(days(bad).is_err(), "{bad}");
        }
    }
}
