import { LocationProvider, Route, Router, useLocation } from 'preact-iso';
import { useEffect } from 'preact/hooks';
import { SignIn } from '../pages/account/SignIn.tsx';
import { SignUp } from '../pages/account/SignUp.tsx';
import { SandboxList } from '../pages/sandboxes/SandboxList.tsx';
import { loadSession, sessionState } from '../service/session.ts';
import { lazyPart } from '../ui/lazy-part.ts';
import { Boundary } from '../ui/Boundary.tsx';
import { Failure, Skeleton } from '../ui/states.tsx';
import { Toasts } from '../ui/toasts.tsx';
import { Join } from '../pages/account/Join.tsx';
import { place } from '../service/session.ts';
import { NotFound } from './NotFound.tsx';
import { Shell } from './Shell.tsx';

const CreateSandbox = lazyPart(
  async () => (await import('../pages/sandboxes/CreateSandbox.tsx')).CreateSandbox,
);
const SandboxPage = lazyPart(async () => (await import('../pages/sandbox/SandboxPage.tsx')).SandboxPage);
const Audit = lazyPart(async () => (await import('../pages/audit/Audit.tsx')).Audit);
const Keys = lazyPart(async () => (await import('../pages/keys/Keys.tsx')).Keys);
const Operator = lazyPart(async () => (await import('../pages/operator/Operator.tsx')).Operator);
const People = lazyPart(async () => (await import('../pages/people/People.tsx')).People);
const Settings = lazyPart(async () => (await import('../pages/settings/Settings.tsx')).Settings);
const Snapshots = lazyPart(async () => (await import('../pages/snapshots/Snapshots.tsx')).Snapshots);
const History = lazyPart(async () => (await import('../pages/history/History.tsx')).History);
const Usage = lazyPart(async () => (await import('../pages/usage/Usage.tsx')).Usage);
const Disks = lazyPart(async () => (await import('../pages/disks/Disks.tsx')).Disks);
const DiskPage = lazyPart(async () => (await import('../pages/disks/DiskPage.tsx')).DiskPage);
const Images = lazyPart(async () => (await import('../pages/images/Images.tsx')).Images);
const BuildPage = lazyPart(async () => (await import('../pages/images/BuildPage.tsx')).BuildPage);
const Network = lazyPart(async () => (await import('../pages/network/Network.tsx')).Network);
const Secrets = lazyPart(async () => (await import('../pages/secrets/Secrets.tsx')).Secrets);
const Webhooks = lazyPart(async () => (await import('../pages/webhooks/Webhooks.tsx')).Webhooks);
const WebhookPage = lazyPart(async () => (await import('../pages/webhooks/WebhookPage.tsx')).WebhookPage);

export function App() {
  return (
    <LocationProvider>
      <Entrance />
      <Toasts />
    </LocationProvider>
  );
}

/** Shows the page for what is known about the session. */
function Entrance() {
  const { path, route, url } = useLocation();
  const state = sessionState.value;
  const isOutside = path === '/sign-in' || path === '/sign-up';
  useEffect(() => {
    if (state === 'signed_out' && !isOutside) route(`/sign-in?next=${encodeURIComponent(url)}`, true);
    if (state === 'ready' && isOutside && location.hash === '') route(readNext(url), true);
  }, [state, isOutside]);
  if (state === 'loading') return <Skeleton />;
  if (state === 'unreachable')
    return (
      <main class="outside">
        <Failure
          error={new Error('The service cannot be reached. Check your connection and try again.')}
          onRetry={() => void loadSession()}
        />
      </main>
    );
  if (path === '/sign-up') return <SignUp />;
  if (state === 'signed_out') return <SignIn />;
  if (place.value === undefined) return <Join />;
  return (
    <Shell>
      <Boundary scope={path}>
        <Pages />
      </Boundary>
    </Shell>
  );
}

/** Returns where to go after a sign-in: a page of the dashboard, and nowhere else. */
function readNext(url: string): string {
  const next = new URL(url, location.origin).searchParams.get('next') ?? '/sandboxes';
  const target = new URL(next, location.origin);
  const isOwn = target.origin === location.origin && !target.pathname.startsWith('/sign-');
  return isOwn ? target.pathname + target.search : '/sandboxes';
}

function Pages() {
  return (
    <Router>
      <Route path="/" component={Home} />
      <Route path="/sandboxes" component={SandboxList} />
      <Route path="/sandboxes/new" component={CreateSandbox} />
      <Route path="/sandboxes/:id/:tab?" component={SandboxPage} />
      <Route path="/audit" component={Audit} />
      <Route path="/keys" component={Keys} />
      <Route path="/operator" component={Operator} />
      <Route path="/people" component={People} />
      <Route path="/settings" component={Settings} />
      <Route path="/history" component={History} />
      <Route path="/snapshots" component={Snapshots} />
      <Route path="/usage" component={Usage} />
      <Route path="/disks" component={Disks} />
      <Route path="/disks/:name" component={DiskPage} />
      <Route path="/images/builds/:id" component={BuildPage} />
      <Route path="/images/:part?" component={Images} />
      <Route path="/network" component={Network} />
      <Route path="/secrets" component={Secrets} />
      <Route path="/webhooks" component={Webhooks} />
      <Route path="/webhooks/:id" component={WebhookPage} />
      <Route default component={NotFound} />
    </Router>
  );
}

function Home() {
  const { route } = useLocation();
  useEffect(() => route('/sandboxes', true), []);
  return <Skeleton />;
}
