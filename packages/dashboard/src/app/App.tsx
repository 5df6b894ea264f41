export function App() {
  return <h1>Coppice</h1>;
}
