import { compileClosedAddresses, UNRESTRICTED_POLICY } from '@coppice/contract';
import { LiveGuest } from '../live-guest.ts';
import { NoteOutbox } from '../notes/note-outbox.ts';

/** A guest without restrictions, whose notes are dropped. */
export const OPEN_GUEST = new LiveGuest({
  address: '127.0.0.1',
  vmId: 'open',
  egress: { network: UNRESTRICTED_POLICY, grants: [] },
  closed: compileClosedAddresses({ openPrivateRanges: [], own: [] }),
  outbox: new NoteOutbox({ send: () => undefined }),
});
