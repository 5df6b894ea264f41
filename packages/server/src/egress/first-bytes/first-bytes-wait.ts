/** How long to wait for a guest's first bytes, where the server may be the one who has to speak first. */

/** Ports on which the client speaks first, always. */
const CLIENT_FIRST_PORTS: ReadonlySet<number> = new Set([80, 443]);
/** FTP, SSH, SMTP, POP3, IMAP, submission, MySQL, VNC. */
const SERVER_FIRST_PORTS: ReadonlySet<number> = new Set([21, 22, 25, 110, 143, 587, 2525, 3306, 5900]);

/** A connection that a browser opens ahead of need is dialled only when it is used, or not at all. */
const CLIENT_FIRST_WAIT_MS = 10_000;
/** The address is allowed without a name, so it is dialled then. A busy emulated guest has taken over a second to a hello. */
const CLIENT_FIRST_ALLOWED_WAIT_MS = 5000;
/** Between the guest's handshake, which ends at us, and its first bytes lies its own scheduling and no network. */
const OTHER_WAIT_MS = 1000;
/** The connection would be allowed: its client may be waiting for the server's greeting. */
const BRIEF_WAIT_MS = 300;
const WHOLE_WAIT_MS = 10_000;

export interface FirstBytesQuestion {
  port: number;
  /** Whether a rule by name could change the verdict on this address and port, either way. */
  couldNameMatter: boolean;
  /** What the address alone comes to. */
  isAddressAllowed: boolean;
}

export type FirstBytesWait =
  /** Judge by the address at once, and read nothing. */
  | { kind: 'none' }
  /** From the accept to the first byte, and from there to the end of the hello or head. */
  | { kind: 'wait'; firstByteMs: number; wholeMs: number };

export function planFirstBytesWait(question: FirstBytesQuestion): FirstBytesWait {
  if (!question.couldNameMatter) return { kind: 'none' };
  return { kind: 'wait', firstByteMs: firstByteWaitMs(question), wholeMs: WHOLE_WAIT_MS };
}

function firstByteWaitMs({ port, isAddressAllowed }: FirstBytesQuestion): number {
  if (SERVER_FIRST_PORTS.has(port) || (isAddressAllowed && !CLIENT_FIRST_PORTS.has(port)))
    return BRIEF_WAIT_MS;
  if (!CLIENT_FIRST_PORTS.has(port)) return OTHER_WAIT_MS;
  return isAddressAllowed ? CLIENT_FIRST_ALLOWED_WAIT_MS : CLIENT_FIRST_WAIT_MS;
}
