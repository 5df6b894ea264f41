/** A control that can be killed: a process of its own, with its configuration as JSON in its argument. */
import pino from 'pino';
import type { ControlConfig } from '../control-config.ts';
import { startControl } from '../control.ts';

const config = JSON.parse(process.argv[2] ?? '') as ControlConfig;
const control = await startControl(config, pino({ level: 'silent' }));
process.stdout.write(`${control.address}\n`);
