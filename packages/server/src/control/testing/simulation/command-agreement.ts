/** Compares the commands of a simulated service in SQL with those of its guests. */
import type { Database } from '../../db/database.ts';
import type { FakeRunner } from '../fakes/fake-runner.ts';
import type { Pair } from './agreement.ts';

/**
 * At rest every command of a guest that runs has a row, which says whether it has ended, and how. A lost command is one
 * that the guest does not have. After a rollback the guest may also lack one that had ended before: its end stays recorded.
 */
export async function compareCommands(
  db: Database,
  { vms, commands, captures }: FakeRunner,
): Promise<Pair[]> {
  const rows = await db
    .selectFrom('commands')
    .innerJoin('sandboxes', 'sandboxes.id', 'commands.sandbox_id')
    .select(['commands.sandbox_id', 'commands.guest_id', 'commands.state', 'commands.exit_code'])
    .where('sandboxes.status', '=', 'running')
    .execute();
  const isInGuest = (vm: string, id: string): boolean =>
    commands.list(vm).some((command) => command.id === id);
  const mayLack = ({ state, sandbox_id }: (typeof rows)[number]): boolean =>
    state === 'lost' || (state === 'exited' && captures.rollbacks.has(sandbox_id));
  return [
    [
      'commands in SQL',
      rows
        .filter((row) => !mayLack(row) || isInGuest(row.sandbox_id, row.guest_id))
        .map((row) => `${row.sandbox_id} ${row.guest_id} ${row.exit_code ?? row.state}`),
      'commands of the guests',
      [...vms.keys()].flatMap((vm) =>
        commands.list(vm).map(({ id, exit }) => `${vm} ${id} ${exit?.exit_code ?? 'running'}`),
      ),
    ],
  ];
}
