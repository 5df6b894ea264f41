/** `node --test` with the files in the order that they are given in: its command line sorts them by name. */
import { createWriteStream } from 'node:fs';
import { run } from 'node:test';
import reportEvents from './event-reporter.mjs';
import reportSpec from './spec-reporter.mjs';

/** @type {{ files: string[], concurrency: number, timeoutMs: number, recordPath: string }} */
const { files, concurrency, timeoutMs, recordPath } = JSON.parse(process.argv[2] ?? '');
const events = run({ files, concurrency, timeout: timeoutMs });
events.on('test:fail', () => (process.exitCode = 1));
events.compose(reportSpec).pipe(process.stdout);
events.compose(reportEvents).pipe(createWriteStream(recordPath));
