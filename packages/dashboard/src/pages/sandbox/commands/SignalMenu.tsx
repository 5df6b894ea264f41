import { useSignal } from '@preact/signals';
import type { Command } from '../../../../../sdk/src/index.ts';
import { ActionDialog } from '../../../ui/ActionDialog.tsx';
import { Icon } from '../../../ui/Icon.tsx';
import { Menu } from '../../../ui/Menu.tsx';
import { toLiteral, toPython } from '../../../ui/snippets.ts';
import { codeOf } from '../sandbox-code.ts';

const SIGNALS = [
  ['INT', 'Interrupt, as Ctrl-C does'],
  ['TERM', 'Ask it to end'],
  ['HUP', 'Hang up'],
  ['USR1', 'User signal 1'],
  ['KILL', 'Kill it at once'],
] as const;

interface SignalMenuProps {
  command: Command;
  sandboxId: string;
  isDisabled: boolean;
  onSent: () => void;
}

export function SignalMenu({ command, sandboxId, isDisabled, onSent }: SignalMenuProps) {
  const chosen = useSignal<string | undefined>(undefined);
  const name = chosen.value;
  return (
    <>
      <Menu
        label="Send a signal"
        button={
          <>
            Signal <Icon name="chevron" size={14} />
          </>
        }
        items={SIGNALS.map(([signal, explanation]) => ({
          label: `${signal} · ${explanation}`,
          isDisabled,
          title: isDisabled ? 'The sandbox takes no calls now.' : undefined,
          onSelect: () => (chosen.value = signal),
        }))}
      />
      {name !== undefined && (
        <ActionDialog
          title={`Send ${name}`}
          verb={`Send ${name}`}
          kind={name === 'KILL' || name === 'TERM' ? 'danger' : 'primary'}
          done={`${name} was sent.`}
          act={async () => {
            await command.signal(name);
            onSent();
          }}
          onClose={() => (chosen.value = undefined)}
          code={codeOf({
            id: sandboxId,
            method: 'POST',
            path: `/commands/${command.id}/signal`,
            body: { signal: name },
            typescript: `const command = await sandbox.commands.get(${toLiteral(command.id)});\nawait command.signal(${toLiteral(name)});`,
            python: `command = sandbox.commands.get(${toPython(command.id)})\ncommand.signal(${toPython(name)})`,
          })}
        >
          <p class="soft">The command and all processes that it has started receive the signal.</p>
        </ActionDialog>
      )}
    </>
  );
}
