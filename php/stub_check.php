<?php
// Checks that cenote.stub.php declares what the extension has: classes, methods, functions, parameters and
// types. Run by test.sh.
$stub = file_get_contents(__DIR__ . '/cenote.stub.php');
$declared = [];
$namespace = $class = '';
foreach (explode("\n", $stub) as $line) {
    if (preg_match('/^namespace\s*(\w*)/', $line, $m)) { $namespace = $m[1]; $class = ''; }
    elseif (preg_match('/^\s+(?:final )?(?:class|interface|enum) (\w+)/', $line, $m)) { $class = ltrim("$namespace\\$m[1]", '\\'); $declared[$class] = true; }
    elseif (preg_match('/^\s+case (\w+);/', $line, $m)) { $declared["$class::$m[1]"] = true; }
    elseif (preg_match('/^(\s+)(?:public )?(?:static )?function (\w+)\(/', $line, $m)) {
        $declared[strlen($m[1]) === 4 ? "$namespace\\$m[2]()" : "$class::$m[2]()"] = true;
    }
}
$wrong = 0;
$real = [];
$extension = new ReflectionExtension('cenote');
$signature = fn(ReflectionFunctionAbstract $f) => $f->getName() . '(' . implode(', ', array_map(
    fn($p) => trim(preg_replace('/^.*\[ <\w+> | \]$| \(.*\)/', '', (string) $p)), $f->getParameters())) . ')';
foreach (get_declared_classes() + [] as $name) { $r = new ReflectionClass($name); if ($r->getExtensionName() === 'cenote' || str_starts_with($name, 'Async\\') || $name === 'Cancellation') { $real[$name] = $r; } }
foreach (get_declared_interfaces() as $name) { if (str_starts_with($name, 'Async\\')) { $real[$name] = new ReflectionClass($name); } }
unset($real['Async\ChannelIterator']);
$have = [];
foreach ($real as $name => $class) {
    $have[$name] = true;
    foreach ($class->getMethods() as $method) {
        if ($method->getDeclaringClass()->getName() === $name && !($class->isEnum() && $method->getName() === 'cases')) {
            $have["$name::{$method->getName()}()"] = true;
        }
    }
    if ($class->isEnum()) { foreach ($class->getConstants() as $case => $_) { $have["$name::$case"] = true; } }
}
foreach (get_defined_functions()['internal'] as $name) {
    if (str_starts_with($name, 'async\\') && !str_contains($name, 'internal')) { $have['Async\\' . substr($name, 6) . '()'] = true; }
}
foreach (array_diff_key($declared, $have) as $name => $_) { echo "only in the stub: $name\n"; $wrong++; }
foreach (array_diff_key($have, $declared) as $name => $_) { echo "not in the stub: $name\n"; $wrong++; }
// Parameters: the stub's text names each one, with its default.
foreach ($have as $name => $_) {
    if (!str_ends_with($name, '()')) { continue; }
    $plain = substr($name, 0, -2);
    $function = str_contains($plain, '::') ? new ReflectionMethod($plain) : new ReflectionFunction($plain);
    $text = substr($plain, (strrpos($plain, ':') ?: strrpos($plain, '\\')) + 1);
    if (!preg_match_all('/function ' . preg_quote($text) . '\(([^{;]*?)\)(?:: [\\\\\?\w|]+)? ?(?:;|\{)/s', $stub, $m)) { continue; }
    $names = array_map(fn($p) => '$' . $p->getName(), $function->getParameters());
    $found = array_filter($m[1], function ($parameters) use ($names) { preg_match_all('/\$\w+/', $parameters, $p); return $p[0] === $names; });
    if (!$found) { echo "other parameters in the stub: $name has ", implode(', ', $names), "\n"; $wrong++; }
}
echo $wrong ? "$wrong differences\n" : count($have) . " declarations match\n";
exit($wrong ? 1 : 0);
