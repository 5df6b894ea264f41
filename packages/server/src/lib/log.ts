import { pino, type Logger } from 'pino';
import { findSpan } from './tracing/tracing.ts';

/** Paths of log objects that hold secrets. */
const REDACTED = [
  'authorization',
  '*.authorization',
  'headers.authorization',
  'req.headers.authorization',
  'apiKey',
  '*.apiKey',
  'token',
  '*.token',
];

/**
 * Creates a log of JSON lines on standard error; standard output is for people. With `isTraced` the lines of a request
 * name its trace.
 */
export function createLog(role: string, level: string, { isTraced = false } = {}): Logger {
  return pino(
    {
      level,
      base: { role, pid: process.pid },
      redact: REDACTED,
      timestamp: pino.stdTimeFunctions.isoTime,
      ...(isTraced ? { mixin: () => findSpan()?.logFields ?? {} } : {}),
    },
    pino.destination(2),
  );
}
