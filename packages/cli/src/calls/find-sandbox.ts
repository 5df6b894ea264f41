import type { Coppice, Sandbox } from '../../../sdk/src/index.ts';
import { Failure, UsageError } from '../output/failure.ts';

const WHOLE_ID = /^run[0-9a-z]{20}$/u;
const MAX_SHOWN = 5;

/**
 * Finds a sandbox by its id, or by the beginning of the id of one that has not ended, with or without `run`. Throws Failure
 * if there is none, or more than one.
 */
export async function findSandbox(client: Coppice, given: string): Promise<Sandbox> {
  if (WHOLE_ID.test(given)) {
    const found = await client.sandboxes.get(given);
    if (found !== null) return found;
    throw new Failure(`there is no sandbox ${given}: "coppice ls" lists yours`);
  }
  const begins = given.startsWith('run') ? given : `run${given}`;
  // An empty variable of a script must not mean "the only sandbox".
  if (begins === 'run')
    throw new UsageError('the id of the sandbox is empty: name a sandbox of "coppice ls"');
  const matches: Sandbox[] = [];
  for await (const sandbox of client.sandboxes.list()) {
    if (sandbox.id.startsWith(begins)) matches.push(sandbox);
    if (matches.length > MAX_SHOWN) break;
  }
  const [only, ...others] = matches;
  if (only === undefined)
    throw new Failure(
      `no sandbox has an id that begins with "${given}": "coppice ls" lists those that have not ended; name others by the whole id`,
    );
  if (others.length === 0) return only;
  const shown = matches.slice(0, MAX_SHOWN).map(({ id }) => id);
  const more = matches.length > MAX_SHOWN ? ' and more' : '';
  throw new Failure(
    `"${given}" is the beginning of several ids, ${shown.join(', ')}${more}: give more of it`,
  );
}
