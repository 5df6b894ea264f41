import type { CallOptions, Coppice, Sandbox } from '../../../sdk/src/index.ts';
import { Failure, UsageError } from '../output/failure.ts';

const WHOLE_ID = /^run[0-9a-z]{20}$/u;
const BEGINNING = /^(?:run)?[0-9a-z]{1,20}$/u;
const MAX_SHOWN = 5;

/**
 * Finds a sandbox by its id or its name, or by the beginning of the id, with or without `run`. The latter two find only
 * sandboxes that have not ended. Throws Failure if there is none, or more than one.
 */
export async function findSandbox(
  client: Coppice,
  given: string,
  { signal }: CallOptions = {},
): Promise<Sandbox> {
  // An empty variable of a script must not mean "the only sandbox".
  if (given === '' || given === 'run')
    throw new UsageError('the sandbox is empty: give an id or a name of "coppice ls"');
  if (WHOLE_ID.test(given)) {
    const found = await client.sandboxes.get(given, { signal });
    if (found !== null) return found;
    throw new Failure(`there is no sandbox ${given}: "coppice ls" lists yours`);
  }
  const named = await firstOf(client.sandboxes.list({ name: given, signal }), () => true);
  if (named.length > 0) return requireOne(named, `"${given}" is the name of sandboxes of several teams`);
  const begins = given.startsWith('run') ? given : `run${given}`;
  const matches = BEGINNING.test(given)
    ? await firstOf(client.sandboxes.list({ signal }), ({ id }) => id.startsWith(begins))
    : [];
  if (matches.length > 0) return requireOne(matches, `"${given}" is the beginning of several ids`);
  throw new Failure(
    `no sandbox has the name "${given}" or an id that begins with it: "coppice ls" lists those that have not ended; name others by the whole id`,
  );
}

/** Returns the first matches, one more than are shown. */
async function firstOf(
  sandboxes: AsyncIterable<Sandbox>,
  isWanted: (sandbox: Sandbox) => boolean,
): Promise<Sandbox[]> {
  const found: Sandbox[] = [];
  for await (const sandbox of sandboxes) {
    if (isWanted(sandbox)) found.push(sandbox);
    if (found.length > MAX_SHOWN) break;
  }
  return found;
}

function requireOne(found: readonly Sandbox[], problem: string): Sandbox {
  const [only, ...others] = found;
  if (only !== undefined && others.length === 0) return only;
  const shown = found.slice(0, MAX_SHOWN).map(({ id }) => id);
  const more = found.length > MAX_SHOWN ? ' and more' : '';
  throw new Failure(`${problem}, ${shown.join(', ')}${more}: give more of the id`);
}
