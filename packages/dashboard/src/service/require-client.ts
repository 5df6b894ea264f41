import type { Coppice } from '../../../sdk/src/index.ts';
import { client } from './session.ts';

/** Returns the client of the team that the page shows, for an action. Throws if there is none. */
export function requireClient(): Coppice {
  if (client.value === undefined) throw new Error('You belong to no team of this organization.');
  return client.value;
}
