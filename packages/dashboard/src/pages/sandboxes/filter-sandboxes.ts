import type { SandboxInfo } from '../../../../sdk/src/index.ts';

export const STATE_FILTERS = ['all', 'running', 'hibernated', 'creating'] as const;
export type StateFilter = (typeof STATE_FILTERS)[number];

/** Returns the sandboxes in a state in whose name, id, image or labels every word of the search occurs. */
export function filterSandboxes(
  sandboxes: readonly SandboxInfo[],
  { search, state }: { search: string; state: StateFilter },
): readonly SandboxInfo[] {
  const words = search.toLowerCase().split(/\s+/u).filter(Boolean);
  return sandboxes.filter(
    (sandbox) =>
      (state === 'all' || sandbox.status === state) &&
      words.every((word) => describe(sandbox).includes(word)),
  );
}

function describe({ id, name, image, labels }: SandboxInfo): string {
  const labelText = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  return [id, name ?? '', image, ...labelText].join(' ').toLowerCase();
}
