import { pino, type Logger } from 'pino';

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

/** Creates a log of JSON lines on standard error; standard output is for people. */
export function createLog(role: string, level: string): Logger {
  return pino(
    { level, base: { role, pid: process.pid }, redact: REDACTED, timestamp: pino.stdTimeFunctions.isoTime },
    pino.destination(2),
  );
}
