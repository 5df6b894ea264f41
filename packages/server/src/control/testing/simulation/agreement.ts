/** Compares the state of a service at rest in SQL with that of its runner, for a simulated or a real service. */

export interface Story {
  /** `<id> <status>` of all records that are not final, from the API. */
  records: readonly string[];
  /** Ids of all snapshots, from the API. */
  snapshots: readonly string[];
  /** `<id> running`, from the runner. */
  vms: readonly string[];
  /** All captures, from the runner. */
  captures: readonly { id: string; kind: string; vmId: string }[];
}

/** Two sides to compare: what each side is, and the ids or names on it. */
export type Pair = readonly [
  left: string,
  lefts: readonly (string | number)[],
  right: string,
  rights: readonly (string | number)[],
];

const HIBERNATED = ' hibernated';

export function compareStories({ records, snapshots, vms, captures }: Story): Pair[] {
  const hibernated = records.filter((record) => record.endsWith(HIBERNATED));
  const awake = records.filter((record) => !record.endsWith(HIBERNATED));
  const ofKind = (wanted: string): typeof captures => captures.filter(({ kind }) => kind === wanted);
  return [
    ['records in SQL', awake, 'VMs of the runner', vms],
    [
      'hibernated records',
      hibernated.map((record) => record.slice(0, -HIBERNATED.length)),
      'VMs of hibernations',
      ofKind('hibernation').map(({ vmId }) => vmId),
    ],
    ['snapshots in SQL', snapshots, 'snapshots of the runner', ofKind('snapshot').map(({ id }) => id)],
  ];
}

/** Returns a line for each pair whose sides differ, whatever their order. */
export function findDifferences(pairs: readonly Pair[]): string[] {
  return pairs.flatMap(([what, left, as, right]) =>
    sorted(left) === sorted(right)
      ? []
      : [`${what}: ${JSON.stringify(left)}, but ${as}: ${JSON.stringify(right)}`],
  );
}

function sorted(names: readonly (string | number)[]): string {
  return names.map(String).toSorted().join(' ');
}
