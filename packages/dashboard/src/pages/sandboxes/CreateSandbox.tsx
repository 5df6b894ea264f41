import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { Coppice, CreateOptions } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import { Button, ButtonLink, IconButton } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { Checkbox, SelectField, TextArea, TextField } from '../../ui/Field.tsx';
import { formatCents, formatMiB } from '../../ui/format.ts';
import { Card, Page } from '../../ui/Page.tsx';
import { PairsField } from '../../ui/PairsField.tsx';
import { useAction } from '../../ui/use-action.ts';
import {
  EMPTY_FORM,
  SIZES,
  toCreateOptions,
  toSnippet,
  type CreateForm,
  type CredentialChoice,
} from './create-form.ts';
import '../../styles/create.css';

/** US cents for an hour of one vCPU, and of one GiB of memory. */
const VCPU_HOUR_CENTS = 2.5;
const GIB_HOUR_CENTS = 1.5;
const SERVICES = ['openai', 'anthropic', 'google', 'github', 'huggingface'];

interface Choices {
  images: readonly string[];
  disks: readonly string[];
  profiles: readonly { name: string; description: string | null }[];
  secrets: readonly string[];
}

type Change = (change: Partial<CreateForm>) => void;
interface PartProps {
  form: CreateForm;
  change: Change;
  choices: Choices | undefined;
}

export function CreateSandbox() {
  const { route, query } = useLocation();
  const form = useSignal<CreateForm>({ ...EMPTY_FORM, ...readQuery(query) });
  const action = useAction();
  const current = client.value;
  const choices = useResource(() => readChoices(current), [current]).value;
  const change: Change = (part) => (form.value = { ...form.value, ...part });
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    let id = '';
    const isDone = await action.run(async () => {
      id = (await create(current, toCreateOptions(form.value))).id;
    });
    if (isDone) route(`/sandboxes/${id}/terminal`);
  };
  const part = { form: form.value, change, choices };
  return (
    <Page title="New sandbox" lead="A Linux machine of its own, from any image.">
      <form class="create" onSubmit={(event) => void submit(event)}>
        <MachineCard {...part} />
        <LifeCard {...part} />
        <NetworkCard {...part} />
        <CredentialsCard {...part} />
        <EnvironmentCard {...part} />
        <div class="create-foot">
          {action.error !== undefined && (
            <p class="fault" role="alert">
              {action.error}
            </p>
          )}
          {action.isBusy && (
            <p class="soft" role="status">
              Creating. The first use of an image takes longer: it is pulled and prepared.
            </p>
          )}
          <Price form={form.value} />
          <span class="gap" />
          <CopyAsCode {...toSnippet(form.value)} />
          <ButtonLink href="/sandboxes">Cancel</ButtonLink>
          <Button kind="primary" type="submit" isBusy={action.isBusy}>
            Create the sandbox
          </Button>
        </div>
      </form>
    </Page>
  );
}

async function create(current: Coppice | undefined, options: CreateOptions) {
  if (current === undefined) throw new Error('You are in no team. Sandboxes belong to teams.');
  return current.sandboxes.create(options);
}

function readQuery(query: Record<string, string>): Partial<CreateForm> {
  const { image, disk } = query;
  return { ...(image === undefined ? {} : { image }), ...(disk === undefined ? {} : { disk }) };
}

async function readChoices(current: Coppice | undefined): Promise<Choices> {
  if (current === undefined) return { images: [], disks: [], profiles: [], secrets: [] };
  const [images, disks, profiles, secrets] = await Promise.all([
    current.images.list(),
    current.listDisks(),
    current.networkProfiles(),
    current.secrets.list(),
  ]);
  return {
    images: images.map(({ image }) => image),
    disks: disks.filter(({ attachedTo }) => attachedTo === null).map(({ name }) => name),
    profiles,
    secrets: secrets.map(({ name }) => name),
  };
}

function MachineCard({ form, change, choices }: PartProps) {
  return (
    <Card title="Machine">
      <div class="columns">
        <TextField
          label="Image"
          hint="Any OCI image with a pinned tag. Prepared ones start at once."
          value={form.image}
          onValue={(image) => change({ image })}
          attributes={{ list: 'images', required: true }}
        />
        <datalist id="images">
          {choices?.images.map((image) => (
            <option key={image} value={image} />
          ))}
        </datalist>
        <TextField
          label="Name"
          isOptional
          hint="Other programs can find it by this name while it exists."
          value={form.name}
          onValue={(name) => change({ name })}
        />
      </div>
      <div class="sizes" role="group" aria-label="Size">
        {SIZES.map(([label, vcpus, memMiB]) => (
          <button
            key={label}
            type="button"
            aria-pressed={form.vcpus === String(vcpus) && form.memMiB === String(memMiB)}
            onClick={() => change({ vcpus: String(vcpus), memMiB: String(memMiB) })}
          >
            <b>{label}</b>
            <span class="soft">
              {vcpus} CPU · {formatMiB(memMiB)}
            </span>
          </button>
        ))}
      </div>
      <div class="columns small">
        <NumberField label="Virtual CPUs" value={form.vcpus} onValue={(vcpus) => change({ vcpus })} />
        <NumberField label="Memory in MiB" value={form.memMiB} onValue={(memMiB) => change({ memMiB })} />
        <NumberField
          label="Scratch disk in MiB"
          value={form.diskMiB}
          onValue={(diskMiB) => change({ diskMiB })}
        />
        <SelectField
          label="Persistent disk"
          hint="Mounted at /workspace; outlives the sandbox."
          value={form.disk}
          options={[
            ['', 'None'],
            ...withChosen(choices?.disks, form.disk).map((name) => [name, name] as const),
          ]}
          onValue={(disk) => change({ disk })}
        />
      </div>
    </Card>
  );
}

function withChosen(names: readonly string[] = [], chosen: string): readonly string[] {
  return chosen === '' || names.includes(chosen) ? names : [chosen, ...names];
}

function NumberField(props: {
  label: string;
  hint?: string;
  value: string;
  onValue: (value: string) => void;
}) {
  return <TextField {...props} attributes={{ type: 'number', inputMode: 'numeric', min: 0 }} />;
}

function LifeCard({ form, change }: PartProps) {
  return (
    <Card title="Life">
      <div class="columns">
        <NumberField
          label="Idle time in seconds"
          hint="After this long without a call the sandbox ends. 0 means never."
          value={form.timeout}
          onValue={(timeout) => change({ timeout })}
        />
        <Checkbox
          label="Hibernate instead of ending"
          hint="Memory and processes are kept, cost nothing, and continue with the next call."
          isChecked={form.autoHibernate}
          onChange={(autoHibernate) => change({ autoHibernate })}
        />
      </div>
    </Card>
  );
}

function NetworkCard({ form, change, choices }: PartProps) {
  const profiles = choices?.profiles ?? [];
  const chosen = profiles.find(({ name }) => form.network === `profile:${name}`);
  return (
    <Card title="Network">
      <SelectField
        label="Policy"
        hint={chosen?.description ?? 'Enforced outside the sandbox, whatever runs in it as root.'}
        value={form.network}
        options={[
          ['', 'No restriction'],
          ...profiles.map(({ name }) => [`profile:${name}`, `Profile: ${name}`] as const),
          ['rules', 'Rules of its own'],
        ]}
        onValue={(network) => change({ network })}
      />
      {form.network === 'rules' && (
        <div class="columns">
          <TextArea
            label="Allow"
            hint="Names, *.domains, addresses, ranges; one on each line. If anything is allowed, the rest is refused."
            value={form.allow}
            placeholder={'api.example.com\n*.example.org'}
            onValue={(allow) => change({ allow })}
          />
          <TextArea
            label="Deny"
            hint="Beats every rule that allows."
            value={form.deny}
            onValue={(deny) => change({ deny })}
          />
        </div>
      )}
    </Card>
  );
}

function CredentialsCard({ form, change, choices }: PartProps) {
  const { credentials } = form;
  const replace = (index: number, part: Partial<CredentialChoice>): void =>
    change({
      credentials: credentials.map((choice, position) =>
        position === index ? { ...choice, ...part } : choice,
      ),
    });
  return (
    <Card title="Credentials">
      <p class="soft">The host signs requests to these services. The sandbox never sees the secret.</p>
      {credentials.map((choice, index) => (
        <CredentialRow
          key={index}
          choice={choice}
          secrets={choices?.secrets ?? []}
          onChange={(part) => replace(index, part)}
          onRemove={() => change({ credentials: credentials.filter((_, position) => position !== index) })}
        />
      ))}
      <div>
        <Button
          icon="plus"
          kind="quiet"
          onClick={() =>
            change({ credentials: [...credentials, { service: 'openai', secret: '', value: '' }] })
          }
        >
          Add a credential
        </Button>
      </div>
    </Card>
  );
}

function CredentialRow(props: {
  choice: CredentialChoice;
  secrets: readonly string[];
  onChange: (part: Partial<CredentialChoice>) => void;
  onRemove: () => void;
}) {
  const { choice, secrets, onChange } = props;
  return (
    <div class="credential">
      <TextField
        label="Service"
        value={choice.service}
        onValue={(service) => onChange({ service })}
        attributes={{ list: 'services' }}
      />
      <datalist id="services">
        {SERVICES.map((service) => (
          <option key={service} value={service} />
        ))}
      </datalist>
      <SelectField
        label="Secret"
        value={choice.secret}
        options={[['', 'Enter a value'], ...secrets.map((name) => [name, name] as const)]}
        onValue={(secret) => onChange({ secret, value: '' })}
      />
      {choice.secret === '' && (
        <TextField
          label="Value"
          value={choice.value}
          onValue={(value) => onChange({ value })}
          attributes={{ type: 'password', autocomplete: 'off' }}
        />
      )}
      <IconButton icon="trash" label={`Remove ${choice.service}`} onClick={props.onRemove} />
    </div>
  );
}

function EnvironmentCard({ form, change }: PartProps) {
  return (
    <Card title="Environment and labels">
      <div class="columns">
        <PairsField
          label="Environment variables"
          pairs={form.env}
          onPairs={(env) => change({ env })}
          addLabel="Add a variable"
          namePlaceholder="NAME"
        />
        <PairsField
          label="Labels"
          hint="To find it, and to see what it cost."
          pairs={form.labels}
          onPairs={(labels) => change({ labels })}
          addLabel="Add a label"
        />
      </div>
      <TextField
        label="Working directory"
        isOptional
        value={form.cwd}
        onValue={(cwd) => change({ cwd })}
        attributes={{ placeholder: 'That of the image' }}
      />
    </Card>
  );
}

function Price({ form }: { form: CreateForm }) {
  const cents = VCPU_HOUR_CENTS * Number(form.vcpus) + (GIB_HOUR_CENTS * Number(form.memMiB)) / 1024;
  if (!Number.isFinite(cents)) return null;
  return (
    <span class="soft">
      <b>{formatCents(cents)}</b> an hour while it runs
    </span>
  );
}
