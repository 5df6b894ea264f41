/** PostgreSQL under writes while its sandbox is cloned in every way. */
import assert from 'node:assert/strict';
import { cloneCheck, describeClones, everyone, forEach } from '../fixtures/clones/clone-check.ts';
import { PROGRAMS, type CloneGuest } from '../fixtures/clones/clone-guest.ts';
import { DATA_DIRECTORY, pushPostgresImage } from '../fixtures/clones/clone-postgres-image.ts';
import { shared } from '../fixtures/service/shared.ts';

const MIN_ROWS = 10;
const WRITER = 'clone-postgres.sh';
const TRANSFER = 'clone-transfer.sql';
const ACKNOWLEDGED = '/tmp/acknowledged';
/**
 * One statement, which sees one moment: the number of rows, the last row, transfers, accounts whose balance is not the
 * sum of their transfers.
 */
const QUESTION = `
  SELECT (SELECT count(*) FROM rows), (SELECT coalesce(max(id), 0) FROM rows), (SELECT count(*) FROM transfers),
    (SELECT count(*) FROM accounts WHERE balance <>
      (SELECT coalesce(sum(CASE taker WHEN accounts.id THEN amount ELSE -amount END), 0)
        FROM transfers WHERE accounts.id IN (giver, taker)))`;
/** Fails if an index and its table disagree. */
const AMCHECK =
  "SELECT bt_index_check(oid, true) FROM pg_class WHERE relname IN ('rows_pkey', 'accounts_pkey')";

interface Contents {
  /** The last row whose commit the writer knows about. */
  acknowledged: number;
  transfers: number;
}

function asPostgres(guest: CloneGuest, command: string, stdin?: string): Promise<string> {
  return guest.read(command, { user: 'postgres', cwd: '/tmp', ...(stdin === undefined ? {} : { stdin }) });
}

/** Returns lines with a space between the columns. */
function ask(guest: CloneGuest, question: string): Promise<string> {
  return asPostgres(guest, "psql -qtAX -v ON_ERROR_STOP=1 -F ' '", question);
}

/** Fails if an acknowledged row is missing or a transfer is applied by half. Returns the contents. */
async function readContents(guest: CloneGuest): Promise<Contents> {
  const acknowledged = Number(await guest.read(`tail -n 1 ${ACKNOWLEDGED}`));
  const [rows, last, transfers, halves] = (await ask(guest, QUESTION)).split(' ').map(Number);
  assert.equal(rows, last, `${guest.id}: no row is missing`);
  assert.ok(rows! >= acknowledged, `${guest.id}: ${rows} of ${acknowledged} rows`);
  assert.equal(halves, 0, `${guest.id}: each balance is the sum of its transfers`);
  return { acknowledged, transfers: transfers! };
}

async function waitForMore(guest: CloneGuest, before: Contents): Promise<void> {
  const enough = before.acknowledged + MIN_ROWS;
  await guest.read(`until [ "$(tail -n 1 ${ACKNOWLEDGED})" -ge ${enough} ]; do sleep 0.2; done`);
  await guest.waitFor('transfers', async () =>
    (await readContents(guest)).transfers > before.transfers ? true : undefined,
  );
}

const transactions = cloneCheck<Contents>({
  name: 'it continues, has every acknowledged row, and no half-applied transaction',
  install: async (parent) => {
    for (const name of [WRITER, TRANSFER]) await parent.install(name);
    await asPostgres(
      parent,
      `pg_ctl --silent --wait --pgdata=${DATA_DIRECTORY} --log=/tmp/postgres.log start`,
    );
    const writer = `bash ${PROGRAMS}/${WRITER} ${PROGRAMS}/${TRANSFER} ${ACKNOWLEDGED}`;
    await asPostgres(parent, `setsid ${writer} </dev/null >/tmp/writer.log 2>&1 &`);
    await parent.read(`until [ -s ${ACKNOWLEDGED} ]; do sleep 0.2; done`);
  },
  before: readContents,
  diverge: waitForMore,
  verify: async (family, before) => {
    await forEach(everyone(family), async (guest) => {
      assert.ok((await readContents(guest)).acknowledged >= before.acknowledged, guest.id);
      await waitForMore(guest, before);
      await ask(guest, AMCHECK);
    });
  },
});

/** Runs last, and in clones that no later check uses: it also ends the writers. */
const recovery = cloneCheck({
  name: 'it recovers from a crash with everything that was acknowledged',
  kinds: ['fork', 'fork of a fork', 'restore'],
  verify: async ({ clones }) => {
    await forEach(clones, async (guest) => {
      const before = await readContents(guest);
      const restart = `pg_ctl --silent --wait --pgdata=${DATA_DIRECTORY} --mode=immediate --log=/tmp/postgres.log restart`;
      await asPostgres(guest, restart);
      const now = await readContents(guest);
      assert.ok(now.acknowledged >= before.acknowledged && now.transfers >= before.transfers);
      await ask(guest, AMCHECK);
    });
  },
});

describeClones({
  title: 'PostgreSQL in a clone',
  api: async () => (await shared()).api,
  shape: async () => ({ image: await pushPostgresImage((await shared()).registry), mem_mib: 512, vcpus: 2 }),
  siblings: 1,
  shortKinds: ['fork', 'rollback'],
  checks: [transactions, recovery],
});
