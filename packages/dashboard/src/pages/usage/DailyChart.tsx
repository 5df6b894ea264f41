/** Cost per day as bars. The library is loaded only for this; the same figures are in a table. */
import { useEffect, useRef } from 'preact/hooks';
import type UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { theme } from '../../service/theme.ts';
import { formatCents } from '../../ui/format.ts';
import { showFailure } from '../../ui/toasts.tsx';
import { formatUtcDay } from './utc-day.ts';

interface DailyChartProps {
  /** Days in UTC, for example `2026-11-03`. */
  days: readonly string[];
  cents: readonly number[];
}

const HEIGHT_PX = 220;

export function DailyChart({ days, cents }: DailyChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const chosen = theme.value;
  useEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const end = new AbortController();
    draw(element, { days, cents }, end.signal).catch(showFailure);
    return () => end.abort();
  }, [days, cents, chosen]);
  return (
    <div
      ref={box}
      class="daily-chart"
      role="img"
      aria-label="Cost of sandboxes per day; the table below has the figures"
    />
  );
}

async function draw(
  element: HTMLElement,
  { days, cents }: DailyChartProps,
  signal: AbortSignal,
): Promise<void> {
  const { default: Plot } = await import('uplot');
  if (signal.aborted) return;
  const positions = days.map((_, index) => index);
  const make = (): UPlot => new Plot(optionsOf(Plot, days, element), [positions, [...cents]], element);
  let plot = make();
  const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
  observer.observe(element);
  // The colours of the canvas follow the system, too.
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const redraw = (): void => {
    plot.destroy();
    plot = make();
  };
  dark.addEventListener('change', redraw);
  signal.addEventListener('abort', () => {
    observer.disconnect();
    dark.removeEventListener('change', redraw);
    plot.destroy();
  });
}

function optionsOf(Plot: typeof UPlot, days: readonly string[], element: HTMLElement): UPlot.Options {
  const [text, line, accent] = ['--soft', '--line', '--accent'].map((name) => colorOf(name, element));
  const paths = Plot.paths.bars?.({ size: [0.72, 40], radius: 0.12 });
  const axis = {
    stroke: text ?? '',
    grid: { stroke: line ?? '', width: 1 },
    ticks: { show: false },
    font: '12px system-ui',
  };
  return {
    width: element.clientWidth,
    height: HEIGHT_PX,
    padding: [12, 8, 0, 0],
    cursor: { y: false, drag: { setScale: false }, points: { show: false } },
    legend: { live: true, markers: { show: false } },
    scales: {
      x: { time: false, range: [-0.6, days.length - 0.4] },
      y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 30,
        incrs: [1, 2, 5, 10],
        values: (_, splits) => splits.map((index) => days[index]?.slice(8) ?? ''),
      },
      { ...axis, size: 76, values: (_, splits) => splits.map(formatCents) },
    ],
    series: [
      { label: 'Day', value: (_, index) => (index === null ? '–' : formatUtcDay(days[index] ?? '')) },
      {
        label: 'Cost',
        fill: accent ?? '',
        stroke: accent ?? '',
        width: 0,
        points: { show: false },
        ...(paths === undefined ? {} : { paths }),
        value: (_, value) => (value === null ? '–' : formatCents(value)),
      },
    ],
  };
}

/** Returns a colour of the page as a canvas knows it: `light-dark()` is resolved by an element. */
function colorOf(name: string, element: HTMLElement): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
