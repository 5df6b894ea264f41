import { AppError } from '@coppice/contract';

/** Parses `label=name:value` of a query; all labels must match. Throws `invalid_request` for contradicting ones. */
export function parseLabels(filters: readonly string[]): Record<string, string> {
  const labels = new Map<string, string>();
  for (const filter of filters) {
    const colon = filter.indexOf(':');
    const name = filter.slice(0, colon);
    const value = filter.slice(colon + 1);
    if (labels.has(name) && labels.get(name) !== value) {
      throw new AppError('invalid_request', `label: "${name}" is given with two values`);
    }
    labels.set(name, value);
  }
  return Object.fromEntries(labels);
}
