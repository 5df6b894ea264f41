#!/usr/bin/env node
import { fileURLToPath } from 'node:url';
import { admin } from '../src/admin/admin.mjs';
import { runTypeScript } from '../src/admin/run-typescript.mjs';

const USAGE = `usage: coppice admin <command>
       coppice audit verify <file> [--secret-file <file>] [--head <seq>:<hmac> | --head <file>] [--prefix]

  admin    commands of the operator, on the server: "coppice admin" lists them
  audit    verifies the audit log of a sandbox without the service: exit code 0 if the log is unchanged, 1 if it
           is not, 2 if it could not be checked
`;

const [name, ...args] = process.argv.slice(2);
if (name === 'admin') process.exitCode = await admin(args);
else if (name === 'audit')
  process.exitCode = await runTypeScript(
    name,
    fileURLToPath(new URL('../src/audit-command.ts', import.meta.url)),
    args,
  );
else if (name === undefined || name === 'help' || name === '--help' || name === '-h')
  process.stdout.write(USAGE);
else {
  process.stderr.write(`coppice: unknown command "${name}"\n\n${USAGE}`);
  process.exitCode = 2;
}
