import { useSignal, type Signal } from '@preact/signals';
import type { CreatedWebhook, WebhookInfo } from '../../../../sdk/src/index.ts';
import { requireClient } from '../../service/require-client.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Checkbox, TextField } from '../../ui/Field.tsx';
import { createWebhookCall, updateWebhookCall, type WebhookFields } from './webhook-calls.ts';
import { EVENT_GROUPS } from './webhook-words.ts';

interface Form {
  url: Signal<string>;
  description: Signal<string>;
  isAll: Signal<boolean>;
  types: Signal<readonly string[]>;
}

function useForm(webhook: WebhookInfo | undefined): Form {
  const types = webhook?.types ?? [];
  return {
    url: useSignal(webhook?.url ?? ''),
    description: useSignal(webhook?.description ?? ''),
    isAll: useSignal(types.length === 0),
    types: useSignal<readonly string[]>(types),
  };
}

function readForm({ url, description, isAll, types }: Form): WebhookFields {
  return { url: url.value.trim(), description: description.value, types: isAll.value ? [] : types.value };
}

function isComplete({ url, isAll, types }: Form): boolean {
  return url.value.trim() !== '' && (isAll.value || types.value.length > 0);
}

interface CreateProps {
  onClose: () => void;
  onCreated: (webhook: CreatedWebhook) => void;
}

export function CreateWebhook({ onClose, onCreated }: CreateProps) {
  const form = useForm(undefined);
  const created = useSignal<CreatedWebhook | undefined>(undefined);
  const fields = readForm(form);
  return (
    <ActionDialog
      title="New webhook"
      verb="Create webhook"
      size="large"
      isDisabled={!isComplete(form)}
      act={async () => (created.value = await requireClient().webhooks.create(fields))}
      onClose={onClose}
      onDone={() => created.value !== undefined && onCreated(created.value)}
      code={createWebhookCall({ ...fields, url: fields.url || 'https://example.com/hook' })}
    >
      <Fields form={form} />
    </ActionDialog>
  );
}

interface EditProps {
  webhook: WebhookInfo;
  onClose: () => void;
  onDone: () => void;
}

export function EditWebhook({ webhook: { id, ...before }, onClose, onDone }: EditProps) {
  const form = useForm({ id, ...before });
  const fields = readForm(form);
  return (
    <ActionDialog
      title="Edit the webhook"
      verb="Save"
      size="large"
      done="The webhook is changed."
      isDisabled={!isComplete(form)}
      act={() => requireClient().webhooks.update(id, fields)}
      onClose={onClose}
      onDone={onDone}
      code={updateWebhookCall(id, fields)}
    >
      <Fields form={form} />
    </ActionDialog>
  );
}

function Fields({ form: { url, description, isAll, types } }: { form: Form }) {
  return (
    <>
      <TextField
        label="URL"
        hint="An https address that anybody on the internet can reach. Every key that lists webhooks reads it."
        value={url.value}
        onValue={(value) => (url.value = value)}
        attributes={{
          autofocus: true,
          inputMode: 'url',
          placeholder: 'https://example.com/hook',
          maxLength: 2048,
        }}
      />
      <TextField
        label="Description"
        isOptional
        value={description.value}
        onValue={(value) => (description.value = value)}
        attributes={{ maxLength: 256 }}
      />
      <fieldset class="choices">
        <legend>Events</legend>
        <Checkbox
          label="All events"
          hint="Also those that later versions add."
          isChecked={isAll.value}
          onChange={(isChecked) => (isAll.value = isChecked)}
        />
        {!isAll.value && <TypeChoices types={types} />}
      </fieldset>
    </>
  );
}

function TypeChoices({ types }: { types: Signal<readonly string[]> }) {
  const toggle = (type: string, isChecked: boolean): void => {
    types.value = isChecked ? [...types.value, type] : types.value.filter((other) => other !== type);
  };
  return (
    <div class="choice-groups">
      {EVENT_GROUPS.map(([subject, names]) => (
        <div key={subject} role="group" aria-label={subject}>
          <h3>{subject}</h3>
          {names.map((type) => (
            <Checkbox
              key={type}
              label={type}
              isChecked={types.value.includes(type)}
              onChange={(isChecked) => toggle(type, isChecked)}
            />
          ))}
        </div>
      ))}
    </div>
  );
}
