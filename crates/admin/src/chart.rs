//! Charts, drawn on the server as SVG. plotters knows fixed colours only; each is a placeholder that becomes a custom
//! property of the stylesheet, so that charts follow light and dark.

use chrono::NaiveDate;
use domain::money::NANOS_PER_UNIT;
use domain::money::Nanos;
use plotters::prelude::*;

use crate::format;

/// Size of the drawing in its own units; the page scales it.
const SIZE: (u32, u32) = (760, 240);
/// Height of the text in the drawing's units.
const TEXT: i32 = 12;

/// Placeholder colours and the custom property that each becomes.
const COLOURS: [(RGBColor, &str, &str); 5] = [
    (QUIET_BAR, "#050505", "var(--chart-bar-quiet)"),
    (BAR, "#010101", "var(--chart-bar)"),
    (GRID, "#020202", "var(--chart-grid)"),
    (AXIS, "#030303", "var(--chart-axis)"),
    (LABEL, "#040404", "var(--chart-text)"),
];
const BAR: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);
const AXIS: RGBColor = RGBColor(3, 3, 3);
const LABEL: RGBColor = RGBColor(4, 4, 4);
const QUIET_BAR: RGBColor = RGBColor(5, 5, 5);

/// Why a chart could not be drawn; its table is still there.
#[derive(Debug, thiserror::Error)]
#[error("the chart could not be drawn: {0}")]
pub struct ChartError(String);

/// One bar per day, as an SVG element that a figure's caption describes (`labelled_by` is the caption's id, `title`
/// what is shown where the pointer rests).
pub fn daily_bars(days: &[(NaiveDate, Nanos)], labelled_by: &str, title: &str) -> Result<String, ChartError> {
    daily_bars_beside(days, &[], labelled_by, title)
}

/// The same before quiet bars of an earlier month: its first day stands behind the first day, and so on.
pub fn daily_bars_beside(
    days: &[(NaiveDate, Nanos)],
    earlier: &[Nanos],
    labelled_by: &str,
    title: &str,
) -> Result<String, ChartError> {
    let mut svg = String::new();
    draw(days, earlier, &mut svg).map_err(|error| ChartError(error.to_string()))?;
    Ok(dress(&svg, labelled_by, title))
}

fn draw(days: &[(NaiveDate, Nanos)], earlier: &[Nanos], svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let height = |amount: &Nanos| amount.0.max(0) as f64 / NANOS_PER_UNIT as f64;
    let values: Vec<f64> = days.iter().map(|(_, amount)| height(amount)).collect();
    let earlier: Vec<f64> = earlier.iter().map(height).collect();
    let width = days.len().max(earlier.len()).max(1) as f64;
    let top = ceiling(values.iter().chain(&earlier).copied().fold(0.0, f64::max));
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .margin_top(10)
        .margin_right(4)
        .x_label_area_size(26)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..width, 0.0..top)?;
    let label = |position: &f64| day_label(days, *position);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(AXIS)
        .y_labels(6)
        .y_label_formatter(&|value| scale_label(*value, top))
        .label_style(("sans-serif", TEXT).into_font().color(&LABEL))
        .draw()?;
    chart.draw_series(earlier.iter().enumerate().map(|(index, value)| {
        let left = index as f64;
        Rectangle::new([(left + 0.05, 0.0), (left + 0.95, *value)], QUIET_BAR.filled())
    }))?;
    chart.draw_series(values.iter().enumerate().map(|(index, value)| {
        let left = index as f64;
        Rectangle::new([(left + 0.15, 0.0), (left + 0.85, *value)], BAR.filled())
    }))?;
    let style = ("sans-serif", TEXT)
        .into_font()
        .color(&LABEL)
        .pos(plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Center,
            plotters::style::text_anchor::VPos::Top,
        ));
    let (_, bottom) = chart.backend_coord(&(0.0, 0.0));
    for index in (0..days.len()).step_by(label_step(days.len())) {
        let middle = index as f64 + 0.5;
        let (x, _) = chart.backend_coord(&(middle, 0.0));
        root.draw_text(&label(&middle), &style, (x, bottom + 8))?;
    }
    root.present()?;
    Ok(())
}

fn day_label(days: &[(NaiveDate, Nanos)], position: f64) -> String {
    days.get(position.max(0.0) as usize)
        .map(|(day, _)| format::day(*day))
        .unwrap_or_default()
}

/// About eight labels fit under the chart.
fn label_step(days: usize) -> usize {
    days.div_ceil(8).max(1)
}

/// The next round figure, so that the scale ends on one of its lines.
fn ceiling(highest: f64) -> f64 {
    if highest <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(highest.log10().floor());
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|candidate| *candidate >= highest)
        .unwrap_or(highest)
}

fn scale_label(value: f64, top: f64) -> String {
    match top {
        0.0..=0.01 => format!("{value:.4}"),
        0.0..=5.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

/// Colours become custom properties; the drawing takes the width of its frame and says what it is.
fn dress(svg: &str, labelled_by: &str, title: &str) -> String {
    let size = format!("width=\"{}\" height=\"{}\" ", SIZE.0, SIZE.1);
    let named = format!("role=\"img\" aria-labelledby=\"{labelled_by}\" ");
    let svg = svg.replacen(&size, &named, 1);
    // The title has to be the first thing within the drawing.
    let svg = match svg
        .find("<svg")
        .and_then(|start| Some(start + svg[start..].find('>')? + 1))
    {
        Some(inside) => format!("{}<title>{}</title>{}", &svg[..inside], escaped(title), &svg[inside..]),
        None => svg,
    };
    COLOURS.iter().fold(svg, |svg, (_, placeholder, property)| {
        svg.replace(placeholder, property)
    })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
