import type { Command } from 'commander';
import { getProfile } from '../profiles/connection.ts';
import { changeProfiles, readProfiles } from '../profiles/profile-file.ts';
import { action, addCommand, first } from '../calls/command-call.ts';

/** Adds `logout`, `profiles` and `use`. */
export function addProfiles(program: Command): void {
  addCommand(program, {
    syntax: 'logout',
    summary: 'removes the key of the current profile, or of --profile, from this machine',
    details: 'The key stays valid: revoke it at the service if others may know it.',
    examples: ['coppice logout', 'coppice logout --profile work'],
  }).action(
    action(async ({ options, out }) => {
      const name = options.profile ?? readProfiles().current;
      if (name === null) return out.note('There is no current profile.');
      await changeProfiles((file) => {
        getProfile(file, name);
        file.profiles.delete(name);
        return { ...file, current: file.current === name ? null : file.current };
      });
      return out.result({ profile: name }, `Removed profile "${name}".`);
    }),
  );
  addCommand(program, {
    syntax: 'profiles',
    summary: 'lists the services of this user, without their keys',
    examples: ['coppice profiles'],
  }).action(
    action(async ({ out }) => {
      const { current, profiles } = readProfiles();
      const rows = [...profiles].map(([name, { url }]) => ({ name, url, isCurrent: name === current }));
      await out.list(rows, [
        { head: '', text: ({ isCurrent }) => (isCurrent ? '*' : '') },
        { head: 'PROFILE', text: ({ name }) => name },
        { head: 'ADDRESS', text: ({ url }) => url },
      ]);
    }),
  );
  addCommand(program, {
    syntax: 'use <profile>',
    summary: 'chooses the profile of the next calls',
    examples: ['coppice use work'],
  }).action(
    action(async (call) => {
      const name = first(call);
      const { profiles } = await changeProfiles((file) => {
        getProfile(file, name);
        return { ...file, current: name };
      });
      const url = profiles.get(name)?.url;
      await call.out.result({ profile: name, url }, `Using ${url} (profile "${name}").`);
    }),
  );
}
