/** Reads the statement of a month, and what is known about its sandboxes. */
import type { Coppice, Statement } from '../../../../sdk/src/index.ts';
import { useResource, type Resource } from '../../service/resource.ts';
import { joinLines, lifeOfEnded, lifeOfPresent, type CostLine } from './statement-costs.ts';

export interface MonthCosts {
  statement: Statement;
  lines: CostLine[];
}

/** Ended sandboxes that are read for their labels and days. The costs of further ones are still in all sums. */
const MAX_ENDED = 20_000;

export function useMonth(client: Coppice | undefined, month: string): Resource<MonthCosts> {
  return useResource(
    async (signal) => {
      if (client === undefined) throw new Error('You are in no team of this organization.');
      return readMonth(client, month, signal);
    },
    [client, month],
  );
}

async function readMonth(client: Coppice, month: string, signal: AbortSignal): Promise<MonthCosts> {
  // One after the other: a sandbox that ends meanwhile is in the history, which is read last.
  const statement = await client.statement(month, { signal });
  if (statement.lines.length === 0) return { statement, lines: [] };
  const present = await client.sandboxes.list({ signal });
  const ended = await client.history({ from: new Date(statement.from), limit: MAX_ENDED, signal });
  const lives = [...present.map(({ record }) => lifeOfPresent(record)), ...ended.map(lifeOfEnded)];
  return { statement, lines: joinLines(statement.lines, lives) };
}
