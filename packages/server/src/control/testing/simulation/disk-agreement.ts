/** Compares the disks of a simulated service in SQL with those of its runner. */
import type { Database } from '../../db/database.ts';
import type { FakeDisks } from '../fakes/fake-disks.ts';
import type { Pair } from './agreement.ts';

/** At rest each disk exists on both sides, has the same holder, and none is being made, attached, detached or removed. */
export async function compareDisks(db: Database, runner: FakeDisks): Promise<Pair[]> {
  const disks = await db.selectFrom('disks').selectAll().execute();
  const snapshots = await db.selectFrom('disk_snapshots').select(['disk_id', 'version', 'status']).execute();
  const theirs = [...runner.all.values()];
  return [
    ['disks in SQL', disks.map(({ id }) => id), 'disks of the runner', theirs.map(({ id }) => id)],
    [
      'sizes in SQL',
      disks.map(({ id, size_gb: gb }) => `${id} ${gb * 2 ** 30}`),
      'sizes of the runner',
      theirs.map(({ id, sizeBytes }) => `${id} ${sizeBytes}`),
    ],
    [
      'holders in SQL',
      disks.flatMap(({ id, sandbox_id: holder }) => (holder === null ? [] : [`${id} ${holder}`])),
      'holders of the runner',
      theirs.flatMap(({ id, holder }) => (holder === undefined ? [] : [`${id} ${holder}`])),
    ],
    [
      'disks that are under way',
      disks
        .filter(
          ({ status, attachment }) =>
            status !== 'ready' || (attachment !== null && attachment !== 'attached'),
        )
        .map(({ id, status, attachment }) => `${id} ${status} ${attachment}`),
      'none',
      [],
    ],
    [
      'snapshots of disks in SQL',
      snapshots.map((row) => `${row.disk_id} ${row.version} ${row.status}`),
      'snapshots of the runner',
      theirs.flatMap(({ id, snapshots: taken }) =>
        [...taken.values()].map(({ version }) => `${id} ${version} ready`),
      ),
    ],
  ];
}
