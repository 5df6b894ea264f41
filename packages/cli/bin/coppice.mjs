#!/usr/bin/env node
import { doctor } from '../src/doctor.mjs';
import { image } from '../src/image.mjs';

const USAGE = `usage: coppice doctor [--json]
       coppice image import <directory or .tar> --as local/<name>:<tag> [--name <name in the layout>]
       coppice image list
       coppice image remove local/<name>:<tag>

  doctor   lists what this machine needs for Coppice, what is there, and what to do about the rest;
           exit code 1 if something needed is missing
  image    brings images to a machine without a registry: OCI layouts, or archives of them as
           "podman save --format oci-archive" and "skopeo copy … oci-archive:…" write them; as root
`;

/** By name: takes the arguments after it, gives the exit code. */
const COMMANDS = new Map([
  ['doctor', doctor],
  ['image', image],
]);

const [name, ...args] = process.argv.slice(2);
const command = COMMANDS.get(name ?? '');
if (command !== undefined) process.exitCode = await command(args);
else if (name === undefined || name === 'help' || name === '--help' || name === '-h')
  process.stdout.write(USAGE);
else {
  process.stderr.write(`coppice: unknown command "${name}"\n\n${USAGE}`);
  process.exitCode = 2;
}
