/** Plans how long to wait for a guest's first bytes. On some connections the server sends first. */

/** Ports on which the client always sends first. */
const CLIENT_FIRST_PORTS: ReadonlySet<number> = new Set([80, 443]);
/** FTP, SSH, SMTP, POP3, IMAP, submission, MySQL, VNC. */
const SERVER_FIRST_PORTS: ReadonlySet<number> = new Set([21, 22, 25, 110, 143, 587, 2525, 3306, 5900]);

/** A connection that a browser opens in advance is dialled only when it is used, or never. */
const CLIENT_FIRST_WAIT_MS = 10_000;
/**
 * After this wait an address that is allowed without a name is dialled. A busy emulated guest has taken over 1 s to
 * send its hello.
 */
const CLIENT_FIRST_ALLOWED_WAIT_MS = 5000;
/**
 * The proxy ends the guest's handshake itself, so only the guest's scheduling, not the network, delays its first bytes.
 */
const OTHER_WAIT_MS = 1000;
/** The connection would be allowed, and its client may wait for the server's greeting. */
const BRIEF_WAIT_MS = 300;
const WHOLE_WAIT_MS = 10_000;

/** The facts that decide the wait. */
export interface FirstBytesQuestion {
  port: number;
  /** True if a name rule could change the verdict on this address and port, in either direction. */
  couldNameMatter: boolean;
  /** True if the policy allows the address without a name. */
  isAddressAllowed: boolean;
}

export type FirstBytesWait =
  /** Judge by the address at once, and read nothing. */
  | { kind: 'none' }
  /** `firstByteMs`: from the accept to the first byte. `wholeMs`: from there to the end of the hello or head. */
  | { kind: 'wait'; firstByteMs: number; wholeMs: number };

/** Returns the wait for a connection. */
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
