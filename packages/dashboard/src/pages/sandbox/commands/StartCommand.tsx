import { useSignal } from '@preact/signals';
import type { Command, Sandbox, StartCommandOptions } from '../../../../../sdk/src/index.ts';
import { ActionDialog } from '../../../ui/ActionDialog.tsx';
import { Checkbox, TextArea, TextField } from '../../../ui/Field.tsx';
import { toLiteral, toPython, toPythonArguments } from '../../../ui/snippets.ts';
import { codeOf } from '../sandbox-code.ts';
import { EMPTY_FORM, readStart, type StartForm } from './start-form.ts';

interface StartCommandProps {
  sandbox: Sandbox;
  onStarted: (command: Command) => void;
  onClose: () => void;
}

export function StartCommand({ sandbox, onStarted, onClose }: StartCommandProps) {
  const form = useSignal<StartForm>(EMPTY_FORM);
  const change = (part: Partial<StartForm>): void => void (form.value = { ...form.value, ...part });
  const { command } = form.value;
  const { options, errors } = readStart(form.value);
  return (
    <ActionDialog
      title="Start a command"
      verb="Start"
      size="large"
      isDisabled={command.trim() === '' || Object.keys(errors).length > 0}
      act={async () => onStarted(await sandbox.commands.start(command, options))}
      onClose={onClose}
      code={describeStart(sandbox.id, command.trim() === '' ? 'npm run build' : command, options)}
    >
      <p class="soft">
        It continues when this page is closed, when the service restarts and while the sandbox hibernates.
      </p>
      <TextArea
        label="Command"
        rows={3}
        placeholder="npm run build"
        value={command}
        onValue={(value) => change({ command: value })}
      />
      <Options form={form.value} errors={errors} onChange={change} />
    </ActionDialog>
  );
}

interface OptionsProps {
  form: StartForm;
  errors: ReturnType<typeof readStart>['errors'];
  onChange: (part: Partial<StartForm>) => void;
}

function Options({ form, errors, onChange }: OptionsProps) {
  return (
    <>
      <div class="columns">
        <TextField
          label="Working directory"
          isOptional
          value={form.cwd}
          onValue={(cwd) => onChange({ cwd })}
          attributes={{ class: 'mono', placeholder: '/workspace' }}
        />
        <TextField
          label="User"
          isOptional
          value={form.user}
          onValue={(user) => onChange({ user })}
          attributes={{ class: 'mono', placeholder: 'root' }}
        />
        <TextField
          label="Time limit"
          isOptional
          hint="For example 15m. Without one it may run as long as the sandbox."
          error={errors.timeout}
          value={form.timeout}
          onValue={(timeout) => onChange({ timeout })}
        />
        <TextField
          label="Tag"
          isOptional
          hint="To find it again."
          value={form.tag}
          onValue={(tag) => onChange({ tag })}
        />
      </div>
      <TextArea
        label="Environment"
        isOptional
        hint="One variable a line: NAME=value"
        error={errors.env}
        rows={2}
        value={form.env}
        onValue={(env) => onChange({ env })}
      />
      <Checkbox
        label="Keep standard input open"
        hint="You can then send it lines from its page."
        isChecked={form.isInteractive}
        onChange={(isInteractive) => onChange({ isInteractive })}
      />
    </>
  );
}

function describeStart(id: string, command: string, options: StartCommandOptions): ReturnType<typeof codeOf> {
  const isPlain = Object.keys(options).length === 0;
  return codeOf({
    id,
    method: 'POST',
    path: '/commands',
    body: { command, ...options },
    typescript: `const command = await sandbox.commands.start(${toLiteral(command)}${isPlain ? '' : `, ${toLiteral(options)}`});`,
    python: `command = sandbox.commands.start(${toPython(command)}${isPlain ? '' : `, ${toPythonArguments({ ...options })}`})`,
  });
}
