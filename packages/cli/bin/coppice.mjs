#!/usr/bin/env node
import { doctor } from '../src/doctor.mjs';

const USAGE = `usage: coppice doctor [--json]

  doctor   lists what this machine needs for Coppice, what is there, and what to do about the rest;
           exit code 1 if something needed is missing
`;

/** By name: takes the arguments after it, gives the exit code. */
const COMMANDS = new Map([['doctor', doctor]]);

const [name, ...args] = process.argv.slice(2);
const command = COMMANDS.get(name ?? '');
if (command !== undefined) process.exitCode = await command(args);
else if (name === undefined || name === 'help' || name === '--help' || name === '-h')
  process.stdout.write(USAGE);
else {
  process.stderr.write(`coppice: unknown command "${name}"\n\n${USAGE}`);
  process.exitCode = 2;
}
