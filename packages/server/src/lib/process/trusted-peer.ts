/**
 * For both ends of the HTTP/2 connection between control and runner, which all sandboxes of the machine share. Node cuts a
 * connection, or takes no further stream on it, when its peer does what otherwise only attackers do. Here tenants who
 * leave and guests who break off do all of it, and neither end is a stranger to the other:
 *
 * - it resets streams, 33 in a second in the long run;
 * - it sends 1000 frames in all that do not fit, such as those that cross with a reset;
 * - the session's memory is full. Node's count of it keeps for ever what was waiting on a stream that was reset, so any
 *   limit is reached one day. What is really held has another bound, the windows of the streams that are open.
 */
const UNLIMITED = 2 ** 32 - 1;

export const TRUSTED_PEER = {
  streamResetBurst: UNLIMITED,
  streamResetRate: UNLIMITED,
  maxSessionInvalidFrames: UNLIMITED,
  /** MB. */
  maxSessionMemory: UNLIMITED,
};
