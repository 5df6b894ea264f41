/**
 * Settings for both ends of the HTTP/2 connection between control and runner, which all sandboxes of the machine share.
 * Node cuts a connection, or accepts no further stream on it, when its peer behaves like an attacker. Here tenants that
 * disconnect and guests that abort cause the same behaviour, and the two ends trust each other:
 *
 * - the peer resets streams, 33 per second in the long run;
 * - it sends 1000 invalid frames in total, such as frames that cross with a reset;
 * - the session's memory is full. Node's count includes for ever what was waiting on a stream when it was reset, so any
 *   limit is reached one day. The memory that is really in use is bounded by the windows of the open streams.
 */
const UNLIMITED = 2 ** 32 - 1;

export const TRUSTED_PEER = {
  streamResetBurst: UNLIMITED,
  streamResetRate: UNLIMITED,
  maxSessionInvalidFrames: UNLIMITED,
  /** MB. */
  maxSessionMemory: UNLIMITED,
};
