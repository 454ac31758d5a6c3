# Prints the public items of one crate, one a line, from the pages of `cargo doc`:
#
#     perl ci/public-api.pl target/doc/cenote_pool
#
# rustdoc writes the signatures; this takes them out of their tags. Every type is followed by its
# methods, by the traits that it implements and by the auto traits that it does not implement
# (`impl !Send`). Blanket implementations and unstable marker traits are left out.

use strict;
use warnings;

my ($root) = @ARGV or die "which folder?\n";
my ($crate) = $root =~ m{([^/]+)/*$};

sub slurp {
    my ($path) = @_;
    open my $file, '<:utf8', $path or die "$path: $!\n";
    local $/;
    return <$file>;
}

# The text of a piece of HTML.
sub text {
    my ($html) = @_;
    $html =~ s{<summary class="hideme">.*?</summary>}{}gs;
    $html =~ s{(<div class="(?:code-attribute|where)">|</div>)}{\n}g;
    $html =~ s{ ?<a href="#" class="tooltip".*?</a>}{}g;
    $html =~ s{<[^>]*>}{}g;
    my %entities = (lt => '<', gt => '>', amp => '&', quot => '"', '#39' => "'", nbsp => ' ');
    $html =~ s{&(\S+?);}{$entities{$1} // "&$1;"}ge;
    return $html;
}

sub one_line {
    my $text = join ' ', split ' ', text(@_);
    $text =~ s{([(\[]) }{$1}g;
    $text =~ s{,? ([)\]])}{$1}g;
    return $text;
}

# A declaration as lines: a field, a variant or a method each has one, however rustdoc wraps it.
sub declaration {
    my (@lines, $line);
    for (split /\n/, text(@_)) {
        s{^\s*//.*}{};
        next unless /\S/;
        my ($indent) = /^(\s*)/;
        s{^\s+|\s+$}{}g;
        $line = defined $line ? "$line $_" : $indent . $_;
        my $open = () = $line =~ /[(\[]/g;
        my $closed = () = $line =~ /[)\]]/g;
        next if $open > $closed || $line !~ m{([;,{}\]]|\*/)$};
        push @lines, $line;
        undef $line;
    }
    push @lines, $line if defined $line;
    s{([(\[]) }{$1}g, s{,? ([)\]])}{$1}g for @lines;
    return @lines;
}

# The part of a page that begins with this id, up to the next part.
sub part {
    my ($page, $id) = @_;
    return $page =~ m{id="\Q$id\E"(.*?)(?=<h2 id=|$)}s ? $1 : '';
}

# Implementations, each with those of its items that match. Sorted, and blocks with the same head
# joined, so that code can move.
sub implementations {
    my ($html, $wanted) = @_;
    my (%blocks, $head);
    while ($html =~ m{<h([34]) class="code-header">(.*?)</h\1>}gs) {
        my ($level, $line) = ($1, one_line($2));
        if ($level == 3) {
            $head = $line;
            $blocks{$head} //= [];
        } elsif (defined $head && $line =~ $wanted) {
            push @{ $blocks{$head} }, "    $line";
        }
    }
    return map { $_, sort @{ $blocks{$_} } } sort keys %blocks;
}

my %items;
my $all = slurp("$root/all.html");
while ($all =~ m{<li><a href="([^"#]+\.html)">}g) {
    my $path = $1;
    my $page = slurp("$root/$path");
    my ($kind, $name) = $path =~ m{([a-z]+)\.([^/]+)\.html$} or next;
    (my $module = $path) =~ s{[^/]*$}{};
    $module =~ s{/}{::}g;
    my ($declared) = $page =~ m{<pre class="rust item-decl"><code>(.*?)</code></pre>}s
        or die "$path has no declaration: rustdoc writes other pages than this script reads\n";
    my @lines = declaration($declared);
    if ($kind eq 'trait') {
        push @lines, implementations(part($page, 'foreign-impls'), qr/^type /);
    } elsif ($kind ne 'type') {
        push @lines, implementations(part($page, 'implementations-list'), qr/^/);
        push @lines, grep { !/^impl.* StructuralPartialEq for / }
            implementations(part($page, 'trait-implementations-list'), qr/^type /);
        push @lines, grep { /^impl(<.*?>)? !(Send|Sync|Unpin) for / }
            implementations(part($page, 'synthetic-implementations-list'), qr/(?!)/);
    }
    $items{"$crate\::$module$name ($kind)"} = \@lines;
}
die "$root/all.html lists nothing: rustdoc writes other pages than this script reads\n" unless %items;

# Re-exports that have no page of their own.
sub reexports {
    my ($folder, $module) = @_;
    my $page = slurp("$folder/index.html");
    while ($page =~ m{<code>(pub use .*?)</code>}gs) {
        $items{"$module (re-export) " . one_line($1)} = [];
    }
    while ($page =~ m{<a class="mod" href="([^"/]+)/index\.html"}g) {
        reexports("$folder/$1", "$module\::$1");
    }
}
reexports($root, $crate);

binmode STDOUT, ':utf8';
for my $name (sort keys %items) {
    print "$name\n";
    print "    $_\n" for @{ $items{$name} };
}
