/**
 * A control that can be killed: a process of its own, with its configuration as JSON in its first argument and the level of
 * its log in the second. It writes its address in a line once it serves, and then its log.
 */
import pino from 'pino';
import type { ControlConfig } from '../control-config.ts';
import { startControl } from '../control.ts';

const config = JSON.parse(process.argv[2] ?? '') as ControlConfig;
const lines: string[] = [];
let write = (line: string): void => void lines.push(line);
const log = pino({ level: process.argv[3] ?? 'silent' }, { write: (line) => write(line) });
const control = await startControl(config, log);
write = (line) => void process.stdout.write(line);
write(`${control.address}\n`);
for (const line of lines) write(line);
