/** A secret that tests plant, and then search where it must not be. */
import { sql } from 'kysely';
import { listTables } from '../backup/backup-tables.ts';
import type { ControlHarness } from './control-harness.ts';

export const CANARY = 'sk-canary-7f3a91c2d4e5b6a8';

/** Returns the places that have the canary in clear text, in any encoding that a row or a line could have. */
export async function findCanary(harness: ControlHarness, answers: readonly string[]): Promise<string[]> {
  const found = answers.filter((text) => holdsCanary(text)).map((text) => `answer ${text.slice(0, 100)}`);
  found.push(...harness.logLines.filter((line) => holdsCanary(line)).map((line) => `log ${line}`));
  await using db = harness.openDatabase();
  for (const { name } of await listTables(db)) {
    const { rows } = await sql<{
      text: string;
    }>`SELECT row_to_json(t)::text AS text FROM ${sql.table(name)} t`.execute(db);
    found.push(...rows.filter(({ text }) => holdsCanary(text)).map(({ text }) => `${name} ${text}`));
  }
  return found;
}

function holdsCanary(text: string): boolean {
  const forms = ['utf8', 'hex', 'base64'] as const;
  return forms.some((form) => {
    const shown = Buffer.from(CANARY).toString(form);
    return text.includes(form === 'base64' ? shown.slice(0, -4) : shown);
  });
}
