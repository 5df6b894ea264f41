import { useSignal } from '@preact/signals';
import type { SandboxSettings } from '../../../../../sdk/src/index.ts';
import { ActionDialog } from '../../../ui/ActionDialog.tsx';
import { Checkbox, TextArea, TextField } from '../../../ui/Field.tsx';
import { toLiteral, toPythonArguments } from '../../../ui/snippets.ts';
import { codeOf } from '../sandbox-code.ts';
import type { ActionProps } from './action-props.ts';
import { fillSettings, readSettings, type SettingsForm } from './settings-form.ts';

export function SettingsDialog({ sandbox, record, perform, onClose }: ActionProps) {
  // The record may change while the dialog is open; the form is compared with the one that filled it.
  const filledFrom = useSignal(record);
  const form = useSignal<SettingsForm>(fillSettings(record));
  const { changes, errors } = readSettings(form.value, filledFrom.value);
  const hasErrors = Object.keys(errors).length > 0;
  return (
    <ActionDialog
      title="Settings of the sandbox"
      verb="Save"
      size="large"
      done="The settings were saved."
      isDisabled={hasErrors || Object.keys(changes).length === 0}
      act={async () => perform(async () => sandbox.update(changes))}
      onClose={onClose}
      code={codeOf(describeChanges(record.id, hasErrors ? {} : changes))}
    >
      <Fields
        form={form.value}
        errors={errors}
        onChange={(part) => (form.value = { ...form.value, ...part })}
      />
    </ActionDialog>
  );
}

interface FieldsProps {
  form: SettingsForm;
  errors: ReturnType<typeof readSettings>['errors'];
  onChange: (part: Partial<SettingsForm>) => void;
}

function Fields({ form, errors, onChange }: FieldsProps) {
  return (
    <>
      <TextField
        label="Name"
        isOptional
        value={form.name}
        onValue={(name) => onChange({ name })}
        attributes={{ maxLength: 64 }}
      />
      <div class="columns">
        <TextField
          label="Idle timeout"
          hint="For example 15m or 2h; 0 for never."
          error={errors.timeout}
          value={form.timeout}
          onValue={(timeout) => onChange({ timeout })}
        />
        <TextField
          label="Longest life"
          isOptional
          hint="From its creation, even if it is in use."
          error={errors.maxLifetime}
          value={form.maxLifetime}
          onValue={(maxLifetime) => onChange({ maxLifetime })}
        />
      </div>
      <TextField
        label="Ends at"
        isOptional
        hint="At this time it is destroyed, even if it is in use."
        error={errors.endsAt}
        value={form.endsAt}
        onValue={(endsAt) => onChange({ endsAt })}
        attributes={{ type: 'datetime-local', step: 1 }}
      />
      <Checkbox
        label="Hibernate when idle"
        hint="In place of being destroyed. The next call that uses it resumes it."
        isChecked={form.autoHibernate}
        onChange={(autoHibernate) => onChange({ autoHibernate })}
      />
      <TextArea
        label="Labels"
        isOptional
        hint="One a line: name=value"
        error={errors.labels}
        rows={3}
        value={form.labels}
        onValue={(labels) => onChange({ labels })}
      />
    </>
  );
}

function describeChanges(id: string, changes: SandboxSettings): Parameters<typeof codeOf>[0] {
  const { expiresAt, ...rest } = changes;
  const plain = { ...rest, ...(expiresAt === undefined ? {} : { expiresAt: toText(expiresAt) }) };
  return {
    id,
    method: 'PATCH',
    body: {
      name: plain.name,
      timeout: plain.timeout,
      max_lifetime: plain.maxLifetime,
      expires_at: plain.expiresAt,
      auto_hibernate: plain.autoHibernate,
      labels: plain.labels,
    },
    typescript: `await sandbox.update(${toLiteral(plain)});`,
    python: `sandbox.update(${toPythonArguments(plain)})`,
  };
}

function toText(moment: Date | string | null): string | null {
  return moment instanceof Date ? moment.toISOString() : moment;
}
