import { Argument, type Command } from 'commander';
import { listCandidates } from '../completion/candidates.ts';
import { SCRIPTS } from '../completion/scripts.ts';
import { write } from '../output/output.ts';
import { action, addCommand, first } from '../calls/command-call.ts';

/** Adds `completion`, and `complete`, which its scripts call. */
export function addCompletion(program: Command): void {
  addCommand(program, {
    syntax: 'completion',
    summary: 'prints a script that completes commands, options and ids in your shell',
    examples: [
      'source <(coppice completion bash)                               # in ~/.bashrc',
      'source <(coppice completion zsh)                                # in ~/.zshrc, after compinit',
      'coppice completion fish > ~/.config/fish/completions/coppice.fish',
    ],
  })
    .addArgument(new Argument('<shell>', 'your shell').choices(Object.keys(SCRIPTS)))
    .action(action(async (call) => write(process.stdout, SCRIPTS[first(call)] ?? '')));
  program.command('complete [words...]', { hidden: true }).action(
    action(async ({ operands }) => {
      for (const text of await listCandidates(program, operands)) await write(process.stdout, `${text}\n`);
    }),
  );
}
