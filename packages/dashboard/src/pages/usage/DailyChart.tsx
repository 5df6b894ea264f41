/** Cost per day as bars. The library is loaded only for this; the same figures are in a table. */
import { useEffect, useRef } from 'preact/hooks';
import type UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { formatCents } from '../../ui/format.ts';
import { showFailure } from '../../ui/toasts.tsx';
import { useColors, type Colors } from '../../ui/use-colors.ts';
import { formatUtcDay } from './utc-day.ts';

interface DailyChartProps {
  /** Days in UTC, for example `2026-11-03`. */
  days: readonly string[];
  cents: readonly number[];
}

const HEIGHT_PX = 220;

export function DailyChart({ days, cents }: DailyChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const colors = useColors();
  useEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const end = new AbortController();
    draw(element, { days, cents, colors }, end.signal).catch(showFailure);
    return () => end.abort();
  }, [days, cents, colors]);
  return (
    <div
      ref={box}
      class="daily-chart"
      role="img"
      aria-label="Cost of sandboxes per day. The table has the figures."
    />
  );
}

type Drawn = DailyChartProps & { colors: Colors };

async function draw(element: HTMLElement, drawn: Drawn, signal: AbortSignal): Promise<void> {
  const { default: Plot } = await import('uplot');
  if (signal.aborted) return;
  const size = () => ({ width: Math.max(1, element.clientWidth), height: HEIGHT_PX });
  const positions = drawn.days.map((_, index) => index);
  const plot = new Plot({ ...optionsOf(Plot, drawn), ...size() }, [positions, [...drawn.cents]], element);
  const observer = new ResizeObserver(() => plot.setSize(size()));
  observer.observe(element);
  signal.addEventListener('abort', () => {
    observer.disconnect();
    plot.destroy();
  });
}

function optionsOf(Plot: typeof UPlot, { days, colors }: Drawn): Omit<UPlot.Options, 'width' | 'height'> {
  const paths = Plot.paths.bars?.({ size: [0.72, 40], radius: 0.12 });
  const axis = {
    stroke: colors['--soft'],
    grid: { stroke: colors['--line'], width: 1 },
    ticks: { show: false },
    font: '12px system-ui, sans-serif',
  };
  return {
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
        fill: colors['--accent'],
        stroke: colors['--accent'],
        width: 0,
        points: { show: false },
        ...(paths === undefined ? {} : { paths }),
        value: (_, value) => (value === null ? '–' : formatCents(value)),
      },
    ],
  };
}
