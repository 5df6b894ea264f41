/** Metrics that are read from a source at the moment of a scrape. */
import { Counter, Gauge, type Registry } from 'prom-client';

/** A metric, and how it is read from a `Source`. */
export interface Reading<Source = void> {
  name: string;
  help: string;
  /** The values have this label, by which they are read. */
  label?: string;
  /** Whether the value only grows, until the source restarts. */
  isCounter?: boolean;
  read: (source: Source) => number | Readonly<Record<string, number>>;
}

/** `collect` is called at each scrape; `labels` are those of every value. */
export function openMetric(
  { name, help, label, isCounter = false }: Omit<Reading, 'read'>,
  { registry, labels = [], collect }: { registry: Registry; labels?: string[]; collect?: () => void },
): Counter | Gauge {
  const options = {
    name,
    help,
    labelNames: label === undefined ? labels : [...labels, label],
    registers: [registry],
    ...(collect !== undefined && { collect }),
  };
  return isCounter ? new Counter(options) : new Gauge(options);
}

/** Sets a metric that was reset. */
export function fillMetric<Source>(
  metric: Counter | Gauge,
  { label, read }: Reading<Source>,
  source: Source,
  labels: Record<string, string> = {},
): void {
  const value = read(source);
  if (typeof value === 'number') metric.inc(labels, value);
  else if (label !== undefined)
    for (const [of, count] of Object.entries(value)) metric.inc({ ...labels, [label]: of }, count);
}
