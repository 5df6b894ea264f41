import { AppError } from '@coppice/contract';

/** Of `label=name:value` in a query, all of which must hold. */
export function parseLabels(filters: readonly string[]): Record<string, string> {
  const labels = new Map<string, string>();
  for (const filter of filters) {
    const colon = filter.indexOf(':');
    const name = filter.slice(0, colon);
    const value = filter.slice(colon + 1);
    if (labels.has(name) && labels.get(name) !== value) {
      throw new AppError('invalid_request', `label: "${name}" is asked for with two values`);
    }
    labels.set(name, value);
  }
  return Object.fromEntries(labels);
}
