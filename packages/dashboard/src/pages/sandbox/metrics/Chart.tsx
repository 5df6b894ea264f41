import { useSignal, type Signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { formatBytes, formatMoment } from '../../../ui/format.ts';
import { BYTE_STEPS, topOf, type ChartData, type ChartSpec } from './chart-data.ts';
import type { Colors } from '../../../ui/use-colors.ts';

interface ChartProps {
  spec: ChartSpec;
  data: ChartData;
  /** Seconds that are shown, up to `endSeconds`. */
  spanSeconds: number;
  endSeconds: number;
  /** Top of the axis at least. */
  leastTop: number;
  colors: Colors;
}

const HEIGHT_PX = 190;
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: 'short' });
const PERCENT = new Intl.NumberFormat(undefined, { style: 'percent', maximumFractionDigits: 1 });

/** A chart whose legend has the values at the pointer, or else the latest. */
export function Chart(props: ChartProps) {
  const { spec, data, colors } = props;
  const index = useSignal<number | null>(null);
  const box = useRef<HTMLDivElement>(null);
  usePlot(box, props, index);
  const [times] = data;
  const shown = index.value ?? times.length - 1;
  const time = times[shown];
  return (
    <section class="card chart">
      <header class="chart-head">
        <h2>{spec.title}</h2>
        {/* Under the pointer it changes too often to be read aloud. */}
        <span class="soft" aria-hidden="true">
          {index.value !== null && time !== undefined && formatMoment(time * 1000)}
        </span>
      </header>
      <ul class="legend">
        {spec.lines.map(({ label, color }, line) => (
          <li key={label}>
            <i style={{ background: colors[color] }} aria-hidden="true" />
            {label}
            <b>{formatValue(spec, data[line + 1]?.[shown])}</b>
          </li>
        ))}
      </ul>
      <div ref={box} class="chart-box" role="img" aria-label={describe(spec, data)} />
    </section>
  );
}

function usePlot(
  box: { current: HTMLDivElement | null },
  props: ChartProps,
  index: Signal<number | null>,
): void {
  const plot = useRef<UPlot | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;
  const { spec, data, colors, spanSeconds, endSeconds } = props;
  useEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const made = new UPlot(
      {
        ...buildOptions(spec, colors, () => latest.current),
        width: Math.max(1, element.clientWidth),
        height: HEIGHT_PX,
        hooks: { setCursor: [({ cursor }) => (index.value = cursor.idx ?? null)] },
      },
      toAligned(latest.current.data),
      element,
    );
    plot.current = made;
    const sizes = new ResizeObserver(() =>
      made.setSize({ width: Math.max(1, element.clientWidth), height: HEIGHT_PX }),
    );
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [spec, colors]);
  useEffect(() => plot.current?.setData(toAligned(data)), [data, spanSeconds, endSeconds]);
}

function toAligned(data: ChartData): UPlot.AlignedData {
  return data as unknown as UPlot.AlignedData;
}

function buildOptions(
  spec: ChartSpec,
  colors: Colors,
  latest: () => ChartProps,
): Omit<UPlot.Options, 'width' | 'height'> {
  const axis = {
    stroke: colors['--soft'],
    font: '12px system-ui, sans-serif',
    grid: { stroke: colors['--line'], width: 1 },
    ticks: { show: false },
  };
  return {
    legend: { show: false },
    // The same time is marked in all charts.
    cursor: { sync: { key: 'metrics' }, drag: { x: false, y: false }, y: false },
    scales: {
      x: { range: () => [latest().endSeconds - latest().spanSeconds, latest().endSeconds] },
      y: { range: (_plot, _low, high) => [0, topOf(high ?? 0, latest().leastTop)] },
    },
    axes: [
      {
        ...axis,
        size: 26,
        values: (_plot, times) => times.map((time) => CLOCK.format(time * 1000)),
        space: 80,
      },
      {
        ...axis,
        size: 78,
        values: (_plot, values) => values.map((value) => formatValue(spec, value)),
        ...(spec.unit === 'share' ? {} : { incrs: [...BYTE_STEPS] }),
      },
    ],
    series: [
      {},
      ...spec.lines.map(({ label, color }) => ({
        label,
        stroke: colors[color],
        width: 1.75,
        ...(spec.lines.length === 1 ? { fill: fade(colors[color]) } : {}),
        points: { show: false },
      })),
    ],
  };
}

/** The computed colour is `rgb(…)`. */
function fade(color: string): string {
  return color.replace(/^rgb\((.*)\)$/u, 'rgba($1, 0.12)');
}

function formatValue({ unit }: ChartSpec, value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  if (unit === 'share') return PERCENT.format(value);
  return unit === 'bytes' ? formatBytes(value) : `${formatBytes(value)}/s`;
}

/** What the chart shows, for readers who do not see it. */
function describe(spec: ChartSpec, [, ...columns]: ChartData): string {
  const parts = spec.lines.map(({ label }, line) => {
    const values = (columns[line] ?? []).filter((value) => value !== null);
    if (values.length === 0) return `${label}: nothing was measured`;
    const highest = values.reduce((high, value) => Math.max(high, value), 0);
    return `${label}: latest ${formatValue(spec, values.at(-1))}, highest ${formatValue(spec, highest)}`;
  });
  return `${spec.title}. ${parts.join('. ')}.`;
}
