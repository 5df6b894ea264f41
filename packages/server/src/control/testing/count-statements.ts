/** Counts the statements that operations of a control in this process send to PostgreSQL. */
import pg from 'pg';

/** Work of all requests together, in the background. Transactions are counted by what is in them. */
const SHARED =
  /^(?:begin|commit|rollback)|from "pending_events"|(?:from|into|update) "?(?:event_counter|events \(|webhook|controls)|pg_notify/iu;

/**
 * Returns how many statements each operation sends, by their texts. Those that are sent less than once for two operations are of
 * something else, like a timer.
 */
export async function countStatements(
  operations: number,
  work: (index: number) => Promise<unknown>,
): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  const { prototype } = pg.Client;
  const original = Reflect.get(prototype, 'query');
  prototype.query = function counting(this: pg.Client, ...args: unknown[]): never {
    const asked = args[0] as string | { text: string };
    const text = typeof asked === 'string' ? asked : asked.text;
    if (!SHARED.test(text)) counts.set(text, (counts.get(text) ?? 0) + 1);
    return Reflect.apply(original, this, args) as never;
  };
  try {
    for (let index = 0; index < operations; index += 1) await work(index);
  } finally {
    prototype.query = original;
  }
  const each = [...counts].map(([text, count]) => [text, Math.round(count / operations)] as const);
  return new Map(each.filter(([, count]) => count > 0));
}
