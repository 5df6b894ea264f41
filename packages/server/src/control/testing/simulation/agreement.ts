/** Whether SQL and the runner tell the same story of a service at rest; of a simulated one and of a real one alike. */

export interface Story {
  /** `<id> <status>` of all records that are not final, as the API tells them. */
  records: readonly string[];
  /** Ids of all snapshots, as the API tells them. */
  snapshots: readonly string[];
  /** `<id> running`, as the runner tells them. */
  vms: readonly string[];
  /** As the runner tells them. */
  captures: readonly { id: string; kind: string; vmId: string }[];
}

/** What is on both sides, and the ids or names on each. */
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

/** A line for each pair that is not the same on both sides, in whatever order. */
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
